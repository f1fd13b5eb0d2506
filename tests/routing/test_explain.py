"""explain() says of the last encoding and the last decoding who did them and why, and every code that it may hold."""

from __future__ import annotations

from pathlib import Path

import pytest

import toktier
from tests.support.material import SMALL_DIR
from toktier.errors import InvalidText, InvalidToken
from toktier.routing.vocabulary import REASON_MEANINGS

BYTE_LEVEL = SMALL_DIR / "cl100k_like.json"  # the program decodes
DELEGATED = SMALL_DIR / "gpt2_like.json"  # the reference decodes
KEYS = ("backend", "path", "fallback")

# file, tokenizer= -> of encoding, of decoding
NATIVE, REFERENCE = ("fast_cpu", "native", None), ("hf", "reference", None)
CASES = [
    (BYTE_LEVEL, "fast_cpu", NATIVE, NATIVE),
    (BYTE_LEVEL, "hf", REFERENCE, REFERENCE),
    (DELEGATED, "fast_cpu", NATIVE, ("hf", "reference", "R_DECODE_REFERENCE")),
    (DELEGATED, "hf", REFERENCE, REFERENCE),
]


def last(tok: toktier.Tokenizer, what: str) -> tuple[str | None, ...]:
    report = tok.explain(summary=True)
    return tuple(report[f"last_{what}_{key}"] for key in KEYS)


@pytest.mark.parametrize(("path", "tokenizer", "encoding", "decoding"), CASES)
def test_encoding_and_decoding_are_told_apart(
    path: Path, tokenizer: str, encoding: tuple[str | None, ...], decoding: tuple[str | None, ...]
) -> None:
    tok = toktier.from_file(path, tokenizer=tokenizer, policy="supported")
    ids = toktier.from_file(path, policy="supported").encode("two words").ids
    assert last(tok, "execution") == last(tok, "decode") == (None, None, None)
    assert tok.decode(ids).strip() == "two words"
    assert last(tok, "execution") == (None, None, None)
    assert last(tok, "decode") == decoding
    tok.encode("two words")
    tok.decode(ids)
    assert last(tok, "execution") == encoding
    assert last(tok, "decode") == decoding
    report = tok.explain()
    assert report["decode"] == decoding[1]
    assert report["last_execution_source"] == "text"
    assert report["counters"]["calls"][str(encoding[0])] == 1
    assert report["counters"]["decode_calls"][str(decoding[0])] == 2
    assert report["fallback_ever_occurred"] == (decoding[2] is not None)


@pytest.mark.parametrize(("path", "tokenizer"), [case[:2] for case in CASES])
def test_streams_and_batches_count_and_calls_that_raise_do_not(path: Path, tokenizer: str) -> None:
    tok = toktier.from_file(path, tokenizer=tokenizer, policy="supported")
    with pytest.raises(InvalidToken):
        tok.decode([-1])
    for call in (tok.encode, tok.count):
        with pytest.raises(InvalidText):
            call("\ud800")
    with pytest.raises(InvalidText):
        tok.encode_batch(["a", "\ud800"])
    tok.encode_batch([])
    before = tok.explain()
    assert before["last_execution_backend"] is before["last_decode_backend"] is None
    assert not any(before["counters"]["calls"].values())
    assert not any(before["counters"]["decode_calls"].values())
    assert before["counters"]["reasons"] == {}
    tok.encode_batch(["a", "b", "c"])
    assert tok.count_batch(["a", "b"]) == [1, 1]
    assert sum(tok.explain()["counters"]["calls"].values()) == 5
    stream = tok.decode_stream()
    stream.step(tok.encode("a")[0])
    assert tok.explain()["last_decode_backend"] is not None


@pytest.mark.parametrize(("path", "tokenizer", "encoding", "decoding"), CASES)
def test_every_code_of_the_report_has_its_meaning(
    path: Path, tokenizer: str, encoding: object, decoding: object
) -> None:
    tok = toktier.from_file(path, tokenizer=tokenizer, policy="supported")
    tok.decode(tok.encode("two words"))
    report = tok.explain()
    codes = {gate["reason"] for gate in report["gates"] if gate["reason"]} | set(report["counters"]["reasons"])
    codes |= {report["last_decode_fallback"]} - {None}
    assert codes == set(report["reason_meanings"])
    assert all(
        report["reason_meanings"][reason.value] == REASON_MEANINGS[reason]
        for reason in REASON_MEANINGS
        if reason in codes
    )
