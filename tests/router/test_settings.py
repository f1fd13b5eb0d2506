"""Settings: each is checked and named, the line counts before the file, and what contradicts itself is refused."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toktier.errors import ConfigInvalid
from toktier.router.options import BY_NAME, OPTIONS
from toktier.router.settings import ServeSettings, default_of, plain, require_not_itself, resolve

UPSTREAM = "http://127.0.0.1:8080"
SECRET = "S3CRET"


def settings(**named: Any) -> ServeSettings:
    return ServeSettings(upstreams=named.pop("upstreams", (UPSTREAM,)), **named)


def refused(**named: Any) -> ConfigInvalid:
    with pytest.raises(ConfigInvalid) as raised:
        settings(**named)
    return raised.value


def file_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "router.toml"
    path.write_text(text)
    return path


def test_every_field_has_an_option_and_every_option_a_field() -> None:
    assert [f.name for f in fields(ServeSettings) if f.name != "origins"] == [option.field for option in OPTIONS]
    assert [option.name for option in OPTIONS if default_of(option) is MISSING] == ["upstream"]


def test_defaults_pass_their_own_checks_and_serve_this_host_alone() -> None:
    made = settings()
    assert (made.host, made.port, made.max_body_bytes, made.max_concurrent) == ("127.0.0.1", 8765, 32 << 20, 100)
    assert made.records is None
    assert not made.record_outputs
    assert not made.access_log
    assert made.cautions() == []
    assert made.embedding_url is None


WRONG: list[tuple[str, Any]] = [
    ("upstreams", ()), ("upstreams", "ftp://host"), ("upstreams", ("http://h", "http://h:80")),
    ("upstreams", ("http://localhost:1", "http://127.0.0.1:1")), ("upstreams", [UPSTREAM, 5]), ("upstreams", None),
    ("upstreams", tuple(f"http://h{n}" for n in range(257))),
    ("family", ""), ("family", "a\nb"), ("tokenizer_file", ""), ("tokenizer_file", 5), ("host", "example.com"),
    ("port", -1), ("port", 65536), ("port", "8765"), ("port", True), ("port", 80.0),
    ("api_key_file", ""), ("api_key_file", "a\0b"), ("no_auth", 1), ("no_auth", "yes"),
    ("allowed_hosts", ("host:80",)), ("allowed_hosts", 5), ("allowed_origins", ("example.com",)),
    ("embedding", "hash"), ("embedding", "ftp://host"), ("embeddings_upstream", "host"),
    ("max_body_bytes", 0), ("max_body_bytes", 1 << 31), ("max_answer_bytes", 1), ("max_concurrent", 0),
    ("max_concurrent", 10**9), ("max_queued", -1), ("queue_seconds", 0), ("queue_seconds", math.nan),
    ("turns_in_a_row", 0),
    ("connect_seconds", math.inf), ("first_byte_seconds", "10"), ("idle_seconds", -1), ("whole_seconds", None),
    ("body_seconds", False), ("drain_seconds", -0.1), ("health_seconds", 0), ("keep_rows", 0),
    ("record_outputs", None), ("kv_events", "tcp://host:1"), ("kv_scheme", "vlm"), ("kv_form", "list"),
    ("kv_topic", "a\nb"), ("kv_block_size", 0), ("open_metrics", "true"), ("access_log", 0), ("policy", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRONG, ids=str)
def test_a_wrong_value_is_named_with_what_was_expected(name: str, value: Any) -> None:
    error = refused(**{name: value})
    assert error.details["setting"] == name
    assert str(error).startswith(f"{name} is ")
    assert "expected" in str(error)
    assert error.remedy == f"correct {name}"


def test_every_check_has_a_wrong_value_above() -> None:
    unchecked = {option.field for option in OPTIONS} - {name for name, _ in WRONG}
    # Their checks are those of a neighbour in the table.
    assert unchecked == {
        "upstream_api_key_file",
        "device",
        "tokenizer",
        "no_tokenizer_fallback",
        "records",
        "kv_replay",
    }


@given(
    st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.text(max_size=5)
    | st.none()
    | st.booleans()
    | st.lists(st.none())
)
def test_a_number_of_seconds_is_taken_or_refused_and_nothing_else_happens(value: Any) -> None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 86400
    if good:
        assert settings(drain_seconds=value).drain_seconds == value
    else:
        assert refused(drain_seconds=value).details["setting"] == "drain_seconds"


@pytest.mark.parametrize(
    ("named", "setting", "says"),
    [
        ({"family": "a", "tokenizer_file": "b"}, "tokenizer_file", "name two tokenizers"),
        ({"no_auth": True, "api_key_file": "k"}, "no_auth", "contradict each other"),
        ({"host": "0.0.0.0"}, "api_key_file", "no key that they must have"),
        ({"host": "::"}, "api_key_file", "no key that they must have"),
        ({"record_outputs": True}, "record_outputs", "needs a database"),
        ({"kv_replay": "tcp://127.0.0.1:5558"}, "kv_replay", "replays events that nothing publishes"),
        ({"kv_events": "ipc:///a", "kv_replay": "ipc:///a"}, "kv_replay", "are one endpoint"),
        ({"embedding": "http://localhost:8080"}, "embedding", "embeddings empty all its slots"),
        ({"embeddings_upstream": UPSTREAM}, "embeddings_upstream", "embeddings empty all its slots"),
        ({"upstreams": "http://127.0.0.1:8765"}, "upstreams", "is where this router listens"),
        ({"embedding": "http://localhost:8765"}, "embedding", "is where this router listens"),
        ({"embeddings_upstream": "http://0.0.0.0:9", "port": 9}, "embeddings_upstream", "is where this router listens"),
    ],
)
def test_what_contradicts_itself_is_refused(named: dict[str, Any], setting: str, says: str) -> None:
    error = refused(**named)
    assert says in str(error)
    assert error.details == {"setting": setting}
    assert error.remedy


def test_other_hosts_are_served_with_keys_or_when_it_is_said() -> None:
    assert "unencrypted" in settings(host="0.0.0.0", api_key_file="keys").cautions()[0]
    assert "there is no key" in settings(host="0.0.0.0", no_auth=True).cautions()[0]


def test_what_tells_prompts_to_others_is_told_of(tmp_path: Path) -> None:
    assert "token IDs of prompts" in settings(kv_events="tcp://*:5557").cautions()[0]
    assert settings(kv_events="tcp://127.0.0.1:5557").cautions() == []
    assert "kept as text" in settings(records=tmp_path / "r.db", record_outputs=True).cautions()[0]


def test_a_port_that_the_system_chose_is_checked_too() -> None:
    made = settings(port=0, upstreams="http://127.0.0.1:45678")
    require_not_itself(made, 45677)
    with pytest.raises(ConfigInvalid, match="where this router listens"):
        require_not_itself(made, 45678)


def test_no_message_holds_credentials_of_a_url() -> None:
    for name in ("upstreams", "embedding", "embeddings_upstream", "allowed_origins"):
        error = refused(**{name: f"http://user:{SECRET}@host:8080"})
        assert SECRET not in f"{error} {error.details} {error.remedy}"


def test_the_line_counts_before_the_file_and_the_file_before_the_default(tmp_path: Path) -> None:
    path = file_of(
        tmp_path, 'upstream = "http://a"\nport = 1000\nqueue-seconds = 5\nopen-metrics = true\nfamily = "f"\n'
    )
    made = resolve({"port": 2000, "upstream": [], "family": None, "open-metrics": False}, path)
    assert (made.port, made.queue_seconds, made.max_queued, made.open_metrics) == (2000, 5.0, 100, False)
    assert made.upstreams == ("http://a",)
    said = {"port": "--port", "queue-seconds": str(path), "max-queued": "default", "open-metrics": "--open-metrics"}
    assert {name: made.origins[name] for name in said} == said
    assert set(made.origins) == set(BY_NAME)


def test_a_file_takes_every_option(tmp_path: Path) -> None:
    import json

    made = settings(
        host="::1", api_key_file=tmp_path / "k", upstream_api_key_file=tmp_path / "u", tokenizer_file=tmp_path / "t",
        tokenizer="hf", allowed_hosts=("a.example",), allowed_origins=("https://a.example",), records=tmp_path / "r.db",
        embedding="http://127.0.0.1:1", embeddings_upstream="http://127.0.0.1:2", record_outputs=True,
        kv_events="tcp://127.0.0.1:5557", kv_replay="tcp://127.0.0.1:5558", kv_scheme="vllm-sha256-cbor", kv_form="map",
        kv_topic="kv", access_log=True, upstreams=("http://a", "http://b:8080"),
    )  # fmt: skip
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in plain(made).items() if value is not None)
    again = resolve({}, file_of(tmp_path, text))
    assert again == made
    assert again.origins["kv-form"].endswith("router.toml")


def test_paths_of_a_file_are_meant_from_its_directory(tmp_path: Path) -> None:
    path = file_of(
        tmp_path, f'upstream = "http://a"\napi-key-file = "keys"\nrecords = "off"\ntokenizer-file = "{tmp_path}/t"\n'
    )
    made = resolve({}, path, lambda: tmp_path / "elsewhere")
    assert made.api_key_file == tmp_path / "keys"
    assert made.tokenizer_file == tmp_path / "t"
    assert made.records is None


def test_records_are_below_the_state_directory_unless_it_is_said(tmp_path: Path) -> None:
    here = {"upstream": [UPSTREAM]}
    assert resolve(here, None, lambda: tmp_path / "r").records == tmp_path / "r"
    assert resolve({**here, "records": "off"}, None, lambda: tmp_path / "r").records is None
    assert resolve({**here, "records": "mine.db"}, None, lambda: tmp_path / "r").records == Path("mine.db")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("upstreams = ['http://a']", "has the unknown key `upstreams`; did you mean `upstream`?"),
        ("max_body_bytes = 5", "has the unknown key `max_body_bytes`; did you mean `max-body-bytes`?"),
        ("config = 'x'", "has the unknown key `config`"),
        ("[serve]\nport = 1", "has the unknown key `serve`"),
        ("port = ", "is not TOML"),
        ("port = 'x'", "`port` in "),
        ("upstream = 'http://u:S3CRET@h'", "`upstream` in "),
        ('"\\u001b[2J" = 1', r"has the unknown key `\x1b[2J`"),
        ("x = " + "[" * 5000 + "]" * 5000, "is not TOML"),
        ("n = " + "9" * 5000, "is not TOML"),
        ("# " + "x" * (1 << 20), "is larger than"),
    ],
)
def test_a_file_that_is_not_understood_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        resolve({"upstream": [UPSTREAM]}, file_of(tmp_path, text))
    assert says in str(raised.value)
    assert SECRET not in str(raised.value)
    assert str(raised.value).isprintable()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent", Path("/dev/zero")):
        with pytest.raises(ConfigInvalid, match="cannot be read"):
            resolve({}, path)


def test_without_an_upstream_there_is_nothing_to_serve() -> None:
    with pytest.raises(ConfigInvalid, match="no upstream is named") as raised:
        resolve({})
    assert "--upstream http://127.0.0.1:8080" in str(raised.value.remedy)


def test_a_wrong_value_of_the_line_is_named_as_it_was_typed() -> None:
    with pytest.raises(ConfigInvalid, match=r"^--max-queued is -1: expected an integer from 0 to 10,000"):
        resolve({"upstream": [UPSTREAM], "max-queued": -1})


def test_what_is_shown_says_where_keys_are_and_no_key(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(SECRET)
    shown = plain(settings(api_key_file=tmp_path / "keys", upstream_api_key_file=tmp_path / "keys"))
    assert shown["api-key-file"] == str(tmp_path / "keys")
    assert SECRET not in str(shown)
    assert list(shown) == [option.name for option in OPTIONS]
