"""`toktier serve` as it is typed: options and their file, what is missing, and the upstreams that it checks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import check_document, environment, run
from tests.router.running import UPSTREAM, running
from tests.support.material import ROOT
from toktier.errors import ExitCode
from toktier.router.options import OPTIONS


def test_the_word_run_may_be_left_out(tmp_path: Path) -> None:
    line = ("--upstream", "http://host:8080", "--show-config", "--json")
    short, long = run("serve", *line, home=tmp_path), run("serve", "run", *line, home=tmp_path)
    assert short.stdout == long.stdout
    document = check_document(short)
    assert list(document["settings"]) == [option.name for option in OPTIONS]
    assert document["settings"]["upstream"] == ["http://host:8080"]
    assert document["settings"]["records"] == str(tmp_path / "state" / "router" / "requests.db")
    assert document["origins"]["upstream"] == "--upstream"
    assert not (tmp_path / "state").exists()


def test_a_table_says_what_holds_and_who_said_it(tmp_path: Path) -> None:
    (tmp_path / "router.toml").write_text(
        'upstream = ["http://a", "http://b"]\nqueue-seconds = 2.5\naccess-log = true\n'
    )
    said = run("serve", "--config", "router.toml", "--show-config", "--no-access-log", home=tmp_path, cwd=tmp_path)
    assert said.code == 0, said.stderr
    rows = [line.split() for line in said.text.splitlines()]
    assert rows[0] == ["SETTING", "VALUE", "ORIGIN"]
    assert ["upstream", "http://a", "http://b", "router.toml"] in rows
    assert ["queue-seconds", "2.5", "router.toml"] in rows
    assert ["access-log", "false", "--access-log"] in rows
    assert ["api-key-file", "-", "default"] in rows


def test_every_option_of_the_line_reaches_the_settings(tmp_path: Path) -> None:
    """Each with a value that is not its default."""
    values = {
        "upstream": "http://a:1", "upstream-api-key-file": "u", "family": "f", "policy": "supported", "device": "cpu",
        "tokenizer": "hf", "host": "::1", "port": 1, "api-key-file": "k", "allow-host": "n", "allow-origin": "http://o",
        "embedding": "http://e:1", "embeddings-upstream": "http://e:2", "records": "r", "kv-events": "ipc:///a",
        "kv-replay": "ipc:///b", "kv-scheme": "vllm-sha256-cbor", "kv-form": "map", "kv-topic": "t",
    }  # fmt: skip
    line: list[str] = []
    for option in OPTIONS:
        if option.name in ("tokenizer-file", "no-auth"):  # --family and --api-key-file say otherwise
            continue
        if option.metavar is None:
            line.append(f"--{option.name}")
            values[option.name] = True
        else:
            default = {"N": 2000, "S": 7.5}.get(option.metavar)
            line += [f"--{option.name}", str(values.setdefault(option.name, default))]
    document = check_document(run("serve", *line, "--show-config", "--json", home=tmp_path))
    for name, value in values.items():
        held = document["settings"][name]
        assert held == [value] or held == value, name
        assert document["origins"][name] == f"--{name}"


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn", "httpx", "orjson", "numpy", "prometheus_client"])
@pytest.mark.parametrize("check", [(), ("--check",)], ids=["serve", "check"])
def test_a_distribution_that_is_missing_is_named_with_the_rest(
    tmp_path: Path, missing: str, check: tuple[str, ...]
) -> None:
    script = (
        "import importlib.util, sys\nfind = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name, *a: None if name == {missing!r} else find(name, *a)\n"
        "from toktier_cli.main import main\nsys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "serve", *UPSTREAM, *check, "--json"], capture_output=True, cwd=ROOT,
        env=environment(tmp_path), text=True,
    )  # fmt: skip
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (ExitCode.UNAVAILABLE, "BACKEND_UNAVAILABLE")
    assert error["details"]["extra"] == "serve"
    assert error["remedy"] == "pip install fastapi uvicorn httpx orjson numpy prometheus-client"


def test_what_the_extra_names_is_what_is_asked_for() -> None:
    import re
    import tomllib

    from toktier.router.distributions import DISTRIBUTIONS

    extra = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]["serve"]
    assert {re.split("[><=]", requirement)[0] for requirement in extra} == set(DISTRIBUTIONS.values())


def test_a_help_page_loads_nothing_of_the_router_that_is_heavy(tmp_path: Path) -> None:
    from tests.cli.test_startup import heavy, loaded

    for line in (("serve", "--help"), ("serve", "run", "--help"), ("serve", *UPSTREAM, "--show-config")):
        modules = loaded(tmp_path, *line)
        assert heavy(modules) == set()
        assert not {"fastapi", "uvicorn", "httpx", "orjson", "h11"} & modules


def test_upstreams_that_do_not_answer_are_told_and_the_answer_is_no(tmp_path: Path) -> None:
    said = run("serve", *UPSTREAM, "--check", home=tmp_path)
    assert said.code == ExitCode.NO
    assert said.text.splitlines()[:2] == [
        "UPSTREAM            STATE  SLOTS  CONTEXT  MODEL",
        "http://127.0.0.1:9  down   -      -        -",
    ]
    assert said.text.splitlines()[2].startswith("note: http://127.0.0.1:9 cannot be reached")
    document = check_document(run("serve", *UPSTREAM, "--check", "--json", home=tmp_path))
    assert (document["upstreams"][0]["state"], document["upstreams"][0]["slots"]) == ("down", None)


def test_a_check_tells_what_a_start_warns_of_and_writes_nothing(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("hunter2\n")
    keys.chmod(0o644)
    others = ("--upstream", "http://127.0.0.1:10", "--embedding", "http://127.0.0.1:11")
    said = run("serve", *UPSTREAM, *others, "--api-key-file", str(keys), "--check", home=tmp_path)
    assert said.code == ExitCode.NO
    assert "other users may open" in said.stderr
    assert "prompts are compared by hashed n-grams, not by http://127.0.0.1:11" in said.stderr
    assert "hunter2" not in said.stderr
    assert not list((tmp_path / "state").rglob("*.db"))


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        (("--upstream", "http://h", "--family", "toktier_mini", "--tokenizer-file", "x"), 2, "name two tokenizers"),
        (("--upstream", "http://h"), 2, "expected one of --family FAMILY"),
        (("--upstream", "http://h", "--file", "absent.json"), 3, "absent.json"),
        (("--upstream", "http://h", "--api-key-file", "absent"), 2, "absent cannot be read"),
        (("--upstream", "http://h", "--api-key-file", "absent", "--check"), 2, "absent cannot be read"),
        (("--upstream", "http://h", "--upstream-api-key-file", "absent"), 2, "absent cannot be read"),
        (("--upstream", "http://h", "--config", ""), 2, "--config is empty"),
        (("--upstream", "http://h", "--queue-seconds", "nan"), 2, "--queue-seconds is nan"),
        (("--upstream", "http://u:S3CRET@h"), 2, "expected no user or password"),
        (("--upstream", "http://\x1b[2Jh"), 2, "expected a URL of plain characters"),
    ],
    ids=range(10),
)
def test_what_cannot_be_served_is_refused_before_anything_listens(
    tmp_path: Path, line: tuple[str, ...], code: int, says: str
) -> None:
    said = run("serve", *line, "--port", "0", home=tmp_path, cwd=tmp_path)
    assert (said.code, said.stdout) == (code, b"")
    assert says in said.stderr
    assert "S3CRET" not in said.stderr
    assert "\x1b" not in said.stderr


@pytest.mark.ci
def test_cautions_come_before_it_serves_and_keys_are_in_none(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("hunter2\n")
    keys.chmod(0o644)
    with running(tmp_path, *UPSTREAM, "--host", "0.0.0.0", "--api-key-file", str(keys)) as router:
        router.ready()
        assert [line.partition(":")[0] for line in router.lines] == ["warning"] * 3
        assert "unencrypted" in router.lines[0]
        assert "hunter2" not in "".join(router.lines)
        os.kill(router.process.pid, 15)
        assert router.end()[0] == 0


@pytest.mark.ci
def test_an_output_that_takes_nothing_ends_it(tmp_path: Path) -> None:
    """Whoever started it would never learn that it serves."""
    with open("/dev/full", "wb") as full:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.router.stub_app", "serve", *UPSTREAM, "--port", "0", "--records", "off"],
            stdout=full, stderr=subprocess.PIPE, cwd=ROOT, env=environment(tmp_path), text=True,
        )  # fmt: skip
        _, err = child.communicate(timeout=60)
    assert child.returncode == ExitCode.ENVIRONMENT
    assert "cannot write to stdout: No space left on device" in err
    assert "Traceback" not in err
