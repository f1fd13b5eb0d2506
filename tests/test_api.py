"""load, from_file and Tokenizer: who serves and what it says, equality with the reference, and every way to refuse."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pickle
import random
import threading
import warnings
from array import array
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers.decoders import DecodeStream as ReferenceStream

import toktier
from tests.support.material import SMALL_DIR, small_tokenizers
from toktier import errors

BYTE_LEVEL = SMALL_DIR / "cl100k_like.json"  # the program decodes
DELEGATED = SMALL_DIR / "gpt2_like.json"  # holds normalized added tokens: the reference decodes
FALLBACK = SMALL_DIR / "llama_like.json"  # byte fallback, no pre-tokenizer
TEXT = "Hello wörld, 世界! 👩‍👩‍👧 <|endoftext|> can't  stop\n\n  123456 "


def reference_of(path: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(path))


def changed(tmp_path: Path, base: Path = BYTE_LEVEL, **fields: Any) -> Path:
    path = tmp_path / "tokenizer.json"
    document = json.loads(base.read_bytes())
    path.write_text(json.dumps({**document, **fields}), encoding="utf-8")
    return path


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


# serving


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
@pytest.mark.parametrize("add_special", [False, True])
def test_the_native_engine_serves_and_equals_the_reference(path: Path, add_special: bool) -> None:
    tok, reference = toktier.from_file(path, policy="require_accelerated"), reference_of(path)
    expected = reference.encode(TEXT, add_special_tokens=add_special)
    calls, size = tok.native_calls
    enc = tok.encode(TEXT, add_special)
    assert tok.native_calls == (calls + 1, size + len(TEXT.encode()))
    assert enc.backend == "fast_cpu"
    assert (enc.ids, enc.offsets, enc.tokens) == (expected.ids, expected.offsets, expected.tokens)
    assert tok.encode(TEXT.encode(), add_special) == enc
    assert tok.count(TEXT, add_special) == len(enc)
    assert [row.ids for row in tok.encode_batch([TEXT, "", TEXT[:9]], add_special)] == [
        reference.encode(text, add_special_tokens=add_special).ids for text in (TEXT, "", TEXT[:9])
    ]
    assert tok.count_batch([TEXT, ""], add_special) == [len(enc), tok.count("", add_special)]


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
def test_plain_equals_encode_special_tokens_of_the_reference(path: Path) -> None:
    reference = reference_of(path)
    text = " a ".join(token.content for token in reference.get_added_tokens_decoder().values())
    reference.encode_special_tokens = True
    expected = reference.encode(text, add_special_tokens=False)
    for tokenizer in ("fast_cpu", "hf"):
        tok = toktier.from_file(path, tokenizer=tokenizer)
        got = tok.encode(text, plain=True)
        assert got.backend == tokenizer
        assert (got.ids, got.offsets) == (expected.ids, expected.offsets)
        assert tok.encode(text).ids != got.ids


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
def test_vocabulary_equals_the_references_whoever_serves(path: Path) -> None:
    reference = reference_of(path)
    added = reference.get_added_tokens_decoder()
    for tokenizer in ("fast_cpu", "hf"):
        tok = toktier.from_file(path, tokenizer=tokenizer)
        assert tok.vocab_size == reference.get_vocab_size(with_added_tokens=True)
        assert tok.special_tokens == {t.content: i for i, t in sorted(added.items()) if t.special}
        for token, token_id in reference.get_vocab(with_added_tokens=True).items():
            assert tok.token_to_id(token) == token_id
            assert tok.id_to_token(token_id) == token
        assert tok.token_to_id("no such token at all") is None
        assert tok.id_to_token(10**6) is None


def test_a_second_load_maps_the_program_and_has_the_same_identity() -> None:
    first, second = toktier.from_file(BYTE_LEVEL), toktier.from_file(BYTE_LEVEL)
    program = second.explain()["program"]
    assert program["from_cache"]
    assert first.fingerprint == second.fingerprint
    assert first.artifact_sha256 == second.artifact_sha256
    assert len(first.fingerprint or "") == 64


# explain


def test_explain_before_and_after_a_call() -> None:
    tok = toktier.from_file(BYTE_LEVEL)
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
    assert report["counters"]["reasons"] == {}
    assert any("registry: absent" in gate["summary"] and gate["open"] for gate in report["gates"])
    assert report["model_resolution"] == {"family": None, "source": "file", "path": str(BYTE_LEVEL)}
    assert json.loads(json.dumps(report)) == report


def test_explain_counts_the_reference_when_it_serves(unknown: Path) -> None:
    with pytest.warns(toktier.ToktierWarning):
        tok = toktier.from_file(unknown)
    tok.encode("hello worlds")
    tok.encode_batch(["hello"])
    tok.count("hello")
    report = tok.explain()
    assert report["backend"] == "hf"
    assert report["fingerprint"] is None
    assert report["last_execution_fallback"] == "R_PROGRAM_UNSUPPORTED"
    assert report["fallback_ever_occurred"]
    assert report["counters"]["calls"] == {"fast_cpu": 0, "hf": 3}
    assert report["counters"]["reasons"] == {"R_PROGRAM_UNSUPPORTED": 3}
    assert "model.type" in report["verdict"]
    assert "WordPiece" in report["verdict"]


def test_explain_counts_delegated_decoding() -> None:
    tok = toktier.from_file(DELEGATED)
    ids = tok.encode(TEXT)
    assert tok.explain(summary=True)["decode"] == "reference"
    assert tok.decode(ids) == reference_of(DELEGATED).decode(ids.ids)
    counters = tok.explain()["counters"]
    assert counters["reasons"] == {"R_DECODE_REFERENCE": 1}
    assert counters["calls"] == {"fast_cpu": 1, "hf": 1}


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
    assert [waiver["reason"] for waiver in tok.explain()["experimental_waivers"]] == ["R_ORACLE_MISMATCH"]


def test_the_environment_names_a_backend_and_arguments_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKTIER_TOKENIZER", "hf")
    assert toktier.from_file(BYTE_LEVEL).encode("a").backend == "hf"
    assert toktier.from_file(BYTE_LEVEL, tokenizer="auto").encode("a").backend == "fast_cpu"
    assert toktier.from_file(BYTE_LEVEL, config=toktier.Config(tokenizer="fast_cpu")).encode("a").backend == "fast_cpu"
    monkeypatch.setenv("TOKTIER_TOKENIZER", "fastcpu")
    with pytest.raises(errors.ConfigInvalid, match="did you mean 'fast_cpu'"):
        toktier.from_file(BYTE_LEVEL)


def test_the_environment_forbids_fallback(monkeypatch: pytest.MonkeyPatch, unknown: Path) -> None:
    monkeypatch.setenv("TOKTIER_TOKENIZER_FALLBACK", "no")
    with pytest.raises(errors.ProgramUnsupported):
        toktier.from_file(unknown)
    assert toktier.from_file(BYTE_LEVEL).encode("a").backend == "fast_cpu"
    monkeypatch.setenv("TOKTIER_TOKENIZER_FALLBACK", "maybe")
    with pytest.raises(errors.ConfigInvalid):
        toktier.from_file(BYTE_LEVEL)


def test_a_gpu_that_is_not_there() -> None:
    tok = toktier.from_file(BYTE_LEVEL, device="cuda")
    assert tok.encode("a").backend == "fast_cpu"
    assert "R_BACKEND_UNAVAILABLE" in tok.explain(summary=True)["reasons"]
    with pytest.raises(errors.BackendUnavailable):
        toktier.from_file(BYTE_LEVEL, tokenizer="gpu", config=toktier.Config(tokenizer_fallback=False))


@pytest.mark.parametrize("options", [{"policy": "certifed"}, {"tokenizer": "cpu"}, {"device": "tpu"}])
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
    path = changed(tmp_path, added_tokens=added, normalizer={"type": "NFC"})
    for policy in ("certified", "reference"):
        with pytest.raises(errors.UnsupportedConfig):
            toktier.from_file(path, policy=policy)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(errors.ArtifactNotFound):
        toktier.from_file(tmp_path / "no.json")


def test_what_neither_compiler_nor_reference_reads_is_refused_at_once(tmp_path: Path) -> None:
    path = changed(tmp_path, pre_tokenizer={"type": "Quantum"})
    with pytest.raises(errors.ToktierError) as caught:
        toktier.from_file(path)
    assert caught.value.exit_code in (errors.ExitCode.USAGE, errors.ExitCode.REFUSED)


def test_no_place_for_programs_costs_one_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKTIER_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.warns(toktier.ToktierWarning, match="held in memory") as caught:
        tok = toktier.from_file(BYTE_LEVEL)
    assert len(caught) == 1
    assert tok.encode(TEXT).backend == "fast_cpu"


def test_an_unknown_family_names_near_ones() -> None:
    with pytest.raises(errors.UnknownFamily) as caught:
        toktier.load("qwen3_8")
    assert "qwen3_8b" in caught.value.details["near"]


# decode


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
def test_decoding_equals_the_references(path: Path, tokenizer: str) -> None:
    tok, reference = toktier.from_file(path, tokenizer=tokenizer), reference_of(path)
    rng = random.Random(path.stem)
    size = reference.get_vocab_size(with_added_tokens=True)
    rows = [[rng.randrange(size + 9) for _ in range(rng.choice([0, 1, 5, 40]))] for _ in range(300)]
    for skip in (True, False):
        for ids in rows:
            assert tok.decode(ids, skip) == reference.decode(ids, skip_special_tokens=skip), ids
        assert tok.decode_batch(rows, skip) == [reference.decode(ids, skip_special_tokens=skip) for ids in rows]
    ids = reference.encode(TEXT).ids
    kinds: list[Any] = [tuple(ids), array("I", ids), memoryview(array("I", ids)), iter(ids), tok.encode(TEXT, True)]
    assert {tok.decode(kind) for kind in kinds} == {reference.decode(ids)}


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
def test_the_decode_stream_equals_the_references(path: Path, tokenizer: str) -> None:
    tok, reference = toktier.from_file(path, tokenizer=tokenizer), reference_of(path)
    rng = random.Random(path.stem)
    size = reference.get_vocab_size(with_added_tokens=True)
    compared = 0
    for _ in range(200):
        prompt = [rng.randrange(size) for _ in range(rng.choice([0, 3]))]
        ids = [rng.randrange(size + 9) for _ in range(rng.choice([5, 60]))]
        for skip in (True, False):
            mine = tok.decode_stream(prompt, skip_special_tokens=skip)
            theirs = ReferenceStream(ids=prompt, skip_special_tokens=skip) if prompt else ReferenceStream(None, skip)
            for token_id in ids:
                try:
                    expected = theirs.step(reference, token_id)
                except Exception:
                    mine.step(token_id)
                    break
                assert mine.step(token_id) == expected
                compared += 1
    assert compared > 5000


@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
@pytest.mark.parametrize("bad", [-1, 2**32, 1.5, "1", None])
def test_what_is_no_id_is_refused_with_its_place(tokenizer: str, bad: Any) -> None:
    tok = toktier.from_file(BYTE_LEVEL, tokenizer=tokenizer)
    with pytest.raises(errors.InvalidToken) as caught:
        tok.decode([1, 2, bad])
    assert caught.value.details["index"] == 2
    with pytest.raises(errors.InvalidToken) as caught:
        tok.decode_batch([[1], [bad]])
    assert caught.value.details["item"] == 1
    with pytest.raises(errors.InvalidToken):
        tok.id_to_token(bad)
    for wrong in ("12", 7, None):
        with pytest.raises(TypeError):
            tok.decode(wrong)


# segments


@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
@pytest.mark.parametrize("path", [BYTE_LEVEL, DELEGATED, FALLBACK], ids=lambda p: p.stem)
def test_segments_are_concatenated_encodings(path: Path, tokenizer: str) -> None:
    tok, reference, plain = toktier.from_file(path, tokenizer=tokenizer), reference_of(path), reference_of(path)
    plain.encode_special_tokens = True
    special = next(iter(tok.special_tokens))
    segments: list[tuple[str | bytes, bool]] = [
        (f"{special}user\n", True),
        (f"say {special} wörld", False),
        ("", True),
        (special.encode(), True),
    ]
    got = tok.encode_segments(segments)
    ids: list[int] = []
    offsets: list[tuple[int, int]] = []
    tokens: list[str] = []
    base = 0
    for text, allow in segments:
        text = text if isinstance(text, str) else text.decode()
        part = (reference if allow else plain).encode(text, add_special_tokens=False)
        ids += part.ids
        offsets += [(base + a, base + b) for a, b in part.offsets]
        tokens += part.tokens
        base += len(text)
    assert (got.ids, got.offsets, got.tokens) == (ids, offsets, tokens)
    assert got.backend == tokenizer
    assert got.ids.count(tok.special_tokens[special]) == 2
    assert tok.encode_segments([]).ids == []


def test_segments_of_a_file_with_stored_truncation_are_refused(tmp_path: Path) -> None:
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    path = changed(tmp_path, truncation=truncation)
    for tokenizer in ("fast_cpu", "hf"):
        tok = toktier.from_file(path, tokenizer=tokenizer)
        assert len(tok.encode(TEXT)) == 4
        with pytest.raises(errors.UnsupportedConfig):
            tok.encode_segments([("a", True)])


# threads, forks, arguments


@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
def test_eight_threads_get_what_one_gets(tokenizer: str) -> None:
    tok = toktier.from_file(DELEGATED, tokenizer=tokenizer)
    texts = [TEXT * n for n in range(1, 30)]
    expected = [(tok.encode(t).ids, tok.decode(tok.encode(t))) for t in texts]
    wrong: list[object] = []

    def work(start: int) -> None:
        try:
            for n in range(len(texts)):
                place = (start + n) % len(texts)
                enc = tok.encode(texts[place])
                if (enc.ids, tok.decode(enc)) != expected[place]:
                    wrong.append(place)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(3 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    if tokenizer == "hf":
        assert tok.explain()["counters"]["calls"]["hf"] == (29 * 3) + 8 * 29 * 2


@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
def test_a_forked_child_encodes(tokenizer: str) -> None:
    tok = toktier.from_file(BYTE_LEVEL, tokenizer=tokenizer)
    batch = [TEXT] * 64
    expected = [row.ids for row in tok.encode_batch(batch)]
    child = os.fork()
    if child == 0:
        same = [row.ids for row in tok.encode_batch(batch)] == expected and tok.encode(TEXT).ids == expected[0]
        os._exit(0 if same else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
def test_arguments_of_encode(tokenizer: str) -> None:
    tok = toktier.from_file(BYTE_LEVEL, tokenizer=tokenizer)
    plain = tok.encode(TEXT).ids
    assert tok.encode(TEXT, lookup="off").ids == tok.encode(TEXT, lookup="auto").ids == plain
    with pytest.raises(errors.ConfigInvalid):
        tok.encode(TEXT, lookup="maybe")
    with pytest.raises(errors.UnsupportedConfig):
        tok.encode(TEXT, session="chat")
    with pytest.raises(TypeError):
        tok.encode(3)
    with pytest.raises(TypeError):
        tok.encode_batch(TEXT)
    for text, position in (("ab\ud83d", 2), (b"ab\xff", 2)):
        with pytest.raises(errors.InvalidText) as caught:
            tok.encode(text)
        assert caught.value.details == {"position": position}
        with pytest.raises(errors.InvalidText) as caught:
            tok.encode_batch(["fine", text])
        assert caught.value.details == {"position": position, "item": 1}


def test_what_is_not_there_yet_is_absent() -> None:
    tok = toktier.from_file(BYTE_LEVEL)
    assert not hasattr(toktier, "from_pretrained")
    assert not hasattr(tok, "session")
    assert not hasattr(tok, "aencode")
    assert set(toktier.__all__) <= set(dir(toktier))
    assert all(getattr(toktier, name) is not None for name in toktier.__all__)
    with pytest.raises(AttributeError):
        _ = toktier.nonsense
    assert "fast_cpu" in repr(tok)


@pytest.mark.parametrize("tokenizer", ["fast_cpu", "hf"])
def test_a_pickle_opens_the_same_file_again(tmp_path: Path, tokenizer: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(BYTE_LEVEL.read_bytes())
    tok = toktier.from_file(path, tokenizer=tokenizer)
    data = pickle.dumps(tok)
    assert len(data) < 2000
    other = pickle.loads(data)
    assert other.encode(TEXT) == tok.encode(TEXT)
    assert other.encode(TEXT).backend == tokenizer
    assert other.fingerprint == tok.fingerprint
    assert copy.copy(tok) is copy.deepcopy(tok) is tok
    changed(tmp_path, normalizer={"type": "Lowercase"})
    with pytest.raises(errors.ArtifactHashMismatch):
        pickle.loads(data)
    path.unlink()
    with pytest.raises(errors.ArtifactNotFound):
        pickle.loads(data)


def test_a_pool_of_processes_encodes() -> None:
    tok = toktier.from_file(BYTE_LEVEL)
    texts = [TEXT * n for n in range(1, 9)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(tok.count, texts) == tok.count_batch(texts)


def test_the_shipped_family_loads_with_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was attempted")

    monkeypatch.setattr("socket.socket.connect", refuse)
    tok = toktier.load("toktier_mini")
    assert tok.encode(TEXT).backend == "fast_cpu"
    assert tok.decode(tok.encode(TEXT), skip_special_tokens=False) == TEXT
    assert tok.explain()["model_resolution"]["family"] == "toktier_mini"
    assert tok.explain()["model_resolution"]["source"] == "shipped"
