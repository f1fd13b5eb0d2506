"""load and from_file: who serves and what is said of it, and every way to refuse."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import tokenizers

import toktier
from tests.support.material import SMALL_DIR, changed_tokenizer
from toktier import errors

BYTE_LEVEL = SMALL_DIR / "cl100k_like.json"  # the program decodes
DELEGATED = SMALL_DIR / "gpt2_like.json"  # holds normalized added tokens: the reference decodes
TEXT = "Hello wörld, 世界! 👩‍👩‍👧 <|endoftext|> can't  stop\n\n  123456 "


def reference_of(path: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(path))


@pytest.fixture
def unknown(tmp_path: Path) -> Path:
    """A tokenizer that the reference reads and the compiler does not."""
    path = tmp_path / "wordpiece.json"
    vocabulary = {"[UNK]": 0, "hello": 1, "world": 2, "##s": 3}
    model = {
        "type": "WordPiece",
        "vocab": vocabulary,
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    }
    document = {"version": "1.0", "added_tokens": [], "model": model, "pre_tokenizer": {"type": "Whitespace"}}
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(autouse=True)
def no_silent_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", toktier.ToktierWarning)
        yield


# loading


def test_a_second_load_maps_the_program_and_has_the_same_identity() -> None:
    first, second = toktier.from_file(BYTE_LEVEL, policy="supported"), toktier.from_file(BYTE_LEVEL, policy="supported")
    program = second.explain()["program"]
    assert program["from_cache"]
    assert first.fingerprint == second.fingerprint
    assert first.artifact_sha256 == second.artifact_sha256
    assert len(first.fingerprint or "") == 64


def test_the_shipped_family_loads_with_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was attempted")

    monkeypatch.setattr("socket.socket.connect", refuse)
    tok = toktier.load("toktier_mini")
    assert tok.encode(TEXT).backend == "fast_cpu"
    assert tok.decode(tok.encode(TEXT), skip_special_tokens=False) == TEXT
    assert tok.explain()["model_resolution"]["family"] == "toktier_mini"
    assert tok.explain()["model_resolution"]["source"] == "shipped"


def test_the_module_names_what_it_has() -> None:
    tok = toktier.from_file(BYTE_LEVEL, policy="supported")
    assert set(toktier.__all__) <= set(dir(toktier))
    assert all(getattr(toktier, name) is not None for name in toktier.__all__)
    with pytest.raises(AttributeError):
        _ = toktier.nonsense
    assert "fast_cpu" in repr(tok)


# explain


def test_explain_before_and_after_a_call() -> None:
    tok = toktier.from_file(BYTE_LEVEL, policy="supported")
    before = tok.explain(summary=True)
    assert before["backend"] == "fast_cpu"
    assert before["last_execution_backend"] is None
    assert not before["fallback_ever_occurred"]
    tok.encode("text")
    after = tok.explain(summary=True)
    assert after["last_execution_backend"] == "fast_cpu"
    assert after["last_execution_path"] == "native"
    assert after["last_execution_fallback"] is None
    report = tok.explain()
    assert after.items() <= report.items()
    assert report["chain"] == ["fast_cpu", "hf"]
    assert report["counters"]["calls"] == {"fast_cpu": 1, "hf": 0}
    assert report["counters"]["native_bytes"] == 4
    assert report["counters"]["decode_calls"] == {"fast_cpu": 0, "hf": 0}
    assert report["counters"]["reasons"] == {}
    assert "fast_cpu serves (" in report["verdict"]
    assert any(gate["gate"] == "registry" and gate["open"] for gate in report["gates"])
    assert report["model_resolution"] == {
        "family": None,
        "source": "file",
        "path": str(BYTE_LEVEL),
        "side_file": None,
    }
    assert json.loads(json.dumps(report)) == report


def test_explain_counts_the_reference_when_it_serves(unknown: Path) -> None:
    with pytest.warns(toktier.ToktierWarning):
        tok = toktier.from_file(unknown)
    tok.encode("hello worlds")
    tok.encode_batch(["hello", "worlds"])
    tok.encode_batch([])
    tok.count("hello")
    report = tok.explain()
    assert report["backend"] == "hf"
    assert report["fingerprint"] is None
    assert report["last_execution_fallback"] == "R_PROGRAM_UNSUPPORTED"
    assert report["fallback_ever_occurred"]
    assert report["counters"]["calls"] == {"fast_cpu": 0, "hf": 4}
    assert report["counters"]["reasons"] == {"R_PROGRAM_UNSUPPORTED": 4}
    assert "model.type" in report["verdict"]
    assert "WordPiece" in report["verdict"]


def test_explain_counts_delegated_decoding() -> None:
    tok = toktier.from_file(DELEGATED, policy="supported")
    ids = tok.encode(TEXT)
    assert tok.explain(summary=True)["decode"] == "reference"
    assert tok.decode(ids) == reference_of(DELEGATED).decode(ids.ids)
    counters = tok.explain()["counters"]
    assert counters["reasons"] == {"R_DECODE_REFERENCE": 1}
    assert counters["calls"] == {"fast_cpu": 1, "hf": 0}
    assert counters["decode_calls"] == {"fast_cpu": 0, "hf": 1}


# routing from outside


def test_beyond_the_compiler_the_reference_serves_with_one_warning(unknown: Path) -> None:
    with pytest.warns(toktier.ToktierWarning, match=r"model\.type .*WordPiece.*R_PROGRAM_UNSUPPORTED") as caught:
        tok = toktier.from_file(unknown)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert tok.encode("hello worlds").ids == [1, 2, 3]
    assert tok.encode("hello worlds").backend == "hf"


@pytest.mark.parametrize(
    "options",
    [
        {"policy": "require_accelerated"},
        {"config": toktier.Config(tokenizer_fallback=False)},
        {"tokenizer": "fast_cpu", "config": toktier.Config(tokenizer_fallback=False)},
    ],
)
def test_beyond_the_compiler_raises_where_the_reference_may_not_serve(unknown: Path, options: dict[str, Any]) -> None:
    with pytest.raises(errors.ProgramUnsupported) as caught:
        toktier.from_file(unknown, **options)
    assert caught.value.details["path"] == "model.type"
    assert "WordPiece" in caught.value.details["component"]


@pytest.mark.parametrize("options", [{"policy": "reference"}, {"tokenizer": "hf"}])
def test_the_reference_when_asked_for_gives_no_warning(unknown: Path, options: dict[str, Any]) -> None:
    for path in (unknown, BYTE_LEVEL):
        tok = toktier.from_file(path, **options)
        assert tok.encode("hello").backend == "hf"
        assert tok.native_calls == (0, 0)
        assert not tok.explain(summary=True)["fallback_ever_occurred"]


def test_an_uncertified_reference_version_serves_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizers, "__version__", "0.22.1")
    with pytest.warns(toktier.ToktierWarning, match="R_ORACLE_MISMATCH"):
        tok = toktier.from_file(BYTE_LEVEL)
    assert tok.encode(TEXT).backend == "hf"
    with pytest.raises(errors.OracleVersionUnsupported):
        toktier.from_file(BYTE_LEVEL, policy="require_accelerated")
    tok = toktier.from_file(BYTE_LEVEL, policy="experimental")
    assert tok.encode(TEXT).backend == "fast_cpu"
    assert next(waiver["reason"] for waiver in tok.explain()["experimental_waivers"]) == "R_ORACLE_MISMATCH"


def test_the_environment_names_a_backend_and_arguments_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKTIER_TOKENIZER", "hf")
    assert toktier.from_file(BYTE_LEVEL).encode("a").backend == "hf"
    assert toktier.from_file(BYTE_LEVEL, policy="supported", tokenizer="auto").encode("a").backend == "fast_cpu"
    named = toktier.Config(tokenizer="fast_cpu")
    assert toktier.from_file(BYTE_LEVEL, policy="supported", config=named).encode("a").backend == "fast_cpu"
    monkeypatch.setenv("TOKTIER_TOKENIZER", "fastcpu")
    with pytest.raises(errors.ConfigInvalid, match="did you mean 'fast_cpu'"):
        toktier.from_file(BYTE_LEVEL)


def test_the_environment_forbids_fallback(monkeypatch: pytest.MonkeyPatch, unknown: Path) -> None:
    monkeypatch.setenv("TOKTIER_TOKENIZER_FALLBACK", "no")
    with pytest.raises(errors.ProgramUnsupported):
        toktier.from_file(unknown)
    assert toktier.from_file(BYTE_LEVEL, policy="supported").encode("a").backend == "fast_cpu"
    monkeypatch.setenv("TOKTIER_TOKENIZER_FALLBACK", "maybe")
    with pytest.raises(errors.ConfigInvalid):
        toktier.from_file(BYTE_LEVEL)


def test_a_gpu_that_is_not_there() -> None:
    with pytest.warns(toktier.ToktierWarning, match="fast_cpu serves, not gpu: no usable GPU") as warned:
        tok = toktier.from_file(BYTE_LEVEL, policy="supported", device="cuda")
    assert [warning.filename for warning in warned] == [__file__]
    assert tok.encode("a").backend == "fast_cpu"
    assert "R_NO_GPU_DETECTED" in tok.explain(summary=True)["reasons"]
    with pytest.raises(errors.BackendUnavailable):
        toktier.from_file(BYTE_LEVEL, tokenizer="gpu", config=toktier.Config(tokenizer_fallback=False))


@pytest.mark.parametrize(
    "options",
    [{"policy": "certifed"}, {"tokenizer": "cpu"}, {"device": "tpu"}, {"gpu_delivery": "nvcc"}, {"gpu_min_bytes": 0}],
)
def test_unknown_names_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigInvalid):
        toktier.from_file(BYTE_LEVEL, **options)


# files that are refused


@pytest.mark.parametrize("policy", ["certified", "reference", "require_accelerated"])
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", errors.ArtifactDamaged),
        (BYTE_LEVEL.read_bytes().rstrip()[:-1], errors.ArtifactDamaged),
        (b"\xff\xfe{}", errors.ArtifactDamaged),
        (b"[" * 100_000, errors.ArtifactDamaged),
        (b'{"a": 1}', errors.NotATokenizer),
        (b"[]", errors.NotATokenizer),
    ],
)
def test_damaged_files_serve_nobody(tmp_path: Path, data: bytes, error: type[errors.ToktierError], policy: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(data)
    with pytest.raises(error) as caught:
        toktier.from_file(path, policy=policy)
    assert str(path) in caught.value.message


def test_added_tokens_that_collide_serve_nobody(tmp_path: Path) -> None:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "special": False, "normalized": True}
    added = [{"id": 5000 + n, "content": content, **flags} for n, content in enumerate(("\u00e9x", "e\u0301x"))]
    path = changed_tokenizer(BYTE_LEVEL, tmp_path / "tokenizer.json", added_tokens=added, normalizer={"type": "NFC"})
    for policy in ("certified", "reference"):
        with pytest.raises(errors.UnsupportedConfig):
            toktier.from_file(path, policy=policy)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(errors.ArtifactNotFound):
        toktier.from_file(tmp_path / "no.json")


def test_what_neither_compiler_nor_reference_reads_is_refused_at_once(tmp_path: Path) -> None:
    path = changed_tokenizer(BYTE_LEVEL, tmp_path / "tokenizer.json", pre_tokenizer={"type": "Quantum"})
    with pytest.raises(errors.ToktierError) as caught:
        toktier.from_file(path)
    assert caught.value.exit_code in (errors.ExitCode.USAGE, errors.ExitCode.REFUSED)


def test_no_place_for_programs_costs_one_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKTIER_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.warns(toktier.ToktierWarning, match="held in memory") as caught:
        tok = toktier.from_file(BYTE_LEVEL, policy="supported")
    assert len(caught) == 1
    assert tok.encode(TEXT).backend == "fast_cpu"


def test_an_unknown_family_names_near_ones() -> None:
    with pytest.raises(errors.UnknownFamily) as caught:
        toktier.load("qwen3_8")
    assert "qwen3_8b" in caught.value.details["near"]


@pytest.mark.parametrize("store", [3, b"sessions", object()], ids=["int", "bytes", "object"])
def test_a_store_that_is_none_is_refused_when_it_is_given(store: object) -> None:
    with pytest.raises(
        errors.ConfigInvalid, match=r"store is of type \w+: expected a directory, a URL or an open store"
    ):
        toktier.load("toktier_mini", policy="supported", store=store)  # type: ignore[arg-type]
