"""What becomes of what engines of others throw, and of answers that are none.

Stand-ins answer here (tests/support/third_party_stand_in.py), so that every test can say that it was the engine that
did, and not the reference in its place.
"""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.backends.third_party import NAMES, STRICT, TEXT, opened
from tests.support import third_party_stand_in
from tests.support.material import SMALL_DIR
from tests.support.third_party_stand_in import PanicException, StandIn
from toktier import Tokenizer, ToktierWarning
from toktier.errors import (
    BackendExecutionFault,
    BackendUnavailable,
)


@pytest.mark.parametrize("thrown", [ValueError("no\nsuch  thing"), PanicException("index out of bounds"), OSError()])
def test_what_it_throws_leaves_the_text_to_the_reference(
    name: str, engine: StandIn, reference: tokenizers.Tokenizer, thrown: BaseException
) -> None:
    tok = opened(name)
    engine.fails = thrown
    expected = reference.encode(TEXT, add_special_tokens=False).ids
    assert (tok.encode(TEXT).ids, tok.encode(TEXT).backend) == (expected, "hf")
    batch = tok.encode_batch([TEXT, "a"])
    assert (batch[0].ids, batch.backend) == (expected, "hf")
    assert tok.count(TEXT) == len(expected)
    report = tok.explain()
    assert report["counters"]["calls"] == {"fast_cpu": 0, "hf": 5, name: 0}
    assert report["counters"]["reasons"] == {"R_EXEC_FAULT": 5}
    assert (report["last_execution_backend"], report["last_execution_fallback"]) == ("hf", "R_EXEC_FAULT")
    assert report["fallback_ever_occurred"] is True
    assert report["exact_id_guarantee"] is False
    engine.fails = None
    assert tok.encode(TEXT).backend == name
    assert tok.explain(summary=True)["last_execution_backend"] == name


@pytest.mark.parametrize("thrown", [ValueError("no\nsuch  thing"), PanicException("no such thing")])
def test_or_it_is_an_error_of_ours_where_fallback_is_forbidden(
    name: str, engine: StandIn, thrown: BaseException
) -> None:
    tok = opened(name, config=STRICT)
    engine.fails = thrown
    for call in (tok.encode, tok.count, lambda text: tok.encode_batch([text])):
        with pytest.raises(BackendExecutionFault, match="no such thing") as caught:
            call(TEXT)
        assert caught.value.details["backend"] == name
        assert caught.value.remedy


@pytest.mark.parametrize("thrown", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_interrupts_pass(name: str, engine: StandIn, thrown: BaseException) -> None:
    tok = opened(name)
    engine.fails = thrown
    with pytest.raises(type(thrown)):
        tok.encode(TEXT)


@pytest.mark.parametrize("thrown", [ValueError("unsupported\nnormalizer"), PanicException("unsupported normalizer")])
def test_a_file_that_it_cannot_load(
    name: str, engine: StandIn, reference: tokenizers.Tokenizer, thrown: BaseException
) -> None:
    engine.load_fails = thrown
    with pytest.warns(ToktierWarning, match="unsupported normalizer") as caught:
        tok = opened(name)
    assert len(caught) == 1
    assert "the reference serves" in str(caught[0].message)
    assert (tok.encode(TEXT).ids, tok.encode(TEXT).backend) == (reference.encode(TEXT).ids, "hf")
    report = tok.explain()
    assert report["backend"] == "hf"
    assert report["reasons"] == ["R_BACKEND_NOT_SELECTED", "R_BACKEND_NOT_SELECTED", "R_BACKEND_REFUSED_FILE"]
    assert report["last_execution_fallback"] == "R_BACKEND_REFUSED_FILE"
    assert report["exact_id_guarantee"] is True
    with pytest.raises(BackendUnavailable, match="unsupported normalizer") as refused:
        opened(name, config=STRICT)
    assert refused.value.details["reason"] == "R_BACKEND_REFUSED_FILE"


def test_one_that_is_not_installed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    third_party_stand_in.uninstall(monkeypatch, name)
    with pytest.warns(ToktierWarning, match=f"pip install {name}"):
        tok = opened(name)
    assert tok.encode(TEXT).backend == "hf"
    with pytest.raises(BackendUnavailable, match="not installed") as caught:
        opened(name, config=STRICT)
    assert f"pip install {name}" in str(caught.value.remedy)


def test_one_that_is_installed_and_broken(name: str, engine: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(asked: str) -> None:
        raise ImportError(f"libfoo.so: cannot open, wanted by {asked}")

    monkeypatch.setattr("toktier.backends.third_party.importlib.import_module", broken)
    with pytest.warns(ToktierWarning, match="libfoo"):
        assert opened(name).encode("a").backend == "hf"


ROW_BY_ROW = [n for n in NAMES if n != "fastokens"]  # which answers in one buffer without types
NO_ROWS = {
    "no array": None, "text": "ab", "bytes": b"abcd", "too large": [1 << 32],
    "negative": numpy.array([-1], dtype=numpy.int32), "floats": numpy.array([1.0], dtype=numpy.float32),
    "two dimensions": numpy.zeros((2, 2), dtype=numpy.uint32),
}  # fmt: skip


@pytest.mark.parametrize("row", NO_ROWS.values(), ids=NO_ROWS)
@pytest.mark.parametrize("file", ["cl100k_like", "llama_like"])
@pytest.mark.parametrize("name", ROW_BY_ROW)
def test_an_answer_that_is_no_row_of_ids_is_a_fault_of_the_engine(
    name: str, engine: StandIn, row: Any, file: str
) -> None:
    """With a template around it and without: no ids that were read out of other bytes, no error of the text."""
    path = SMALL_DIR / f"{file}.json"
    loose, strict = opened(name, path), opened(name, path, config=STRICT)
    expected = tokenizers.Tokenizer.from_file(str(path)).encode(TEXT).ids
    engine.answers = lambda rows: [row for _ in rows]
    encoding = loose.encode(TEXT, add_special_tokens=True)
    assert (encoding.ids, encoding.backend) == (expected, "hf")
    assert loose.encode_batch([TEXT], add_special_tokens=True).backend == "hf"
    assert loose.explain()["counters"]["reasons"] == {"R_EXEC_FAULT": 2}
    for call in (strict.encode, strict.count, lambda text, add: strict.encode_batch([text], add)):
        with pytest.raises(BackendExecutionFault):
            call(TEXT, True)


@pytest.mark.parametrize("name", ROW_BY_ROW)
def test_a_row_of_wider_integers_is_read_by_value(name: str, engine: StandIn) -> None:
    engine.answers = lambda rows: [numpy.array(row, dtype=numpy.int64) for row in rows]
    path = SMALL_DIR / "llama_like.json"
    encoding = opened(name, path).encode(TEXT, add_special_tokens=True)
    assert (encoding.ids, encoding.backend) == (tokenizers.Tokenizer.from_file(str(path)).encode(TEXT).ids, name)


@pytest.mark.parametrize("answers", [lambda rows: rows[1:], lambda rows: [*rows, [1]], lambda rows: []])
@pytest.mark.parametrize("name", [n for n in NAMES if n != "gigatoken"])  # which is asked text by text
def test_a_batch_with_too_few_or_too_many_rows_is_a_fault(name: str, engine: StandIn, answers: Any) -> None:
    texts = [TEXT, "a", ""]
    loose, strict = opened(name), opened(name, config=STRICT)
    engine.answers = answers
    batch = loose.encode_batch(texts)
    assert (len(batch), batch.backend) == (3, "hf")
    assert len(loose.count_batch(texts)) == 3
    with pytest.raises(BackendExecutionFault, match="rows for 3 texts"):
        strict.encode_batch(texts)


@pytest.mark.parametrize("ends", [[1, 2], [0, 1, 3], [0, 1], [0, 3, 2], [0], []])
def test_a_buffer_that_its_rows_do_not_fill_is_a_fault(monkeypatch: pytest.MonkeyPatch, ends: list[int]) -> None:
    engine = third_party_stand_in.install(monkeypatch, "fastokens")
    tok = opened("fastokens", config=STRICT)
    engine.ends = lambda _: ends
    engine.answers = lambda rows: [[1, 2]]
    with pytest.raises(BackendExecutionFault):
        tok.encode_batch([TEXT] * (2 if len(ends) == 3 else 1))


@pytest.mark.parametrize("answer", [None, b"bytes", 3])
def test_decoding_to_what_is_no_text_is_a_fault(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    engine = third_party_stand_in.install(monkeypatch, "basetenkenizer")
    loose, strict = opened("basetenkenizer"), opened("basetenkenizer", config=STRICT)
    ids = loose.encode("a word").ids
    engine.text = lambda text: answer
    assert loose.decode(ids) == "a word"
    assert loose.decode_stream().step(ids[0]) is not None
    _last_decoded(loose, "hf", "reference", "R_EXEC_FAULT")
    engine.text = lambda text: text
    assert loose.decode(ids) == "a word"
    _last_decoded(loose, "basetenkenizer", "third_party", None)
    engine.text = lambda text: answer
    with pytest.raises(BackendExecutionFault):
        strict.decode(ids)


def _last_decoded(tok: Tokenizer, by: str, path: str, fallback: str | None) -> None:
    said = tok.explain(summary=True)
    members = ("last_decode_backend", "last_decode_path", "last_decode_fallback")
    assert tuple(said[member] for member in members) == (by, path, fallback)


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=8),
    failing=st.sets(st.integers(0, 7)),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_law_every_text_is_answered_whole_by_one_engine_and_counted_once(
    name: str, engine: StandIn, served: Tokenizer, reference: tokenizers.Tokenizer, texts: list[str], failing: set[int]
) -> None:
    tok, before = served, served.explain()["counters"]
    for number, text in enumerate(texts):
        engine.fails = PanicException("it cannot") if number in failing else None
        encoding = tok.encode(text)
        assert encoding.ids == reference.encode(text, add_special_tokens=False).ids
        assert encoding.backend == ("hf" if number in failing else name)
    engine.fails = None
    after = tok.explain()["counters"]
    fallen = sum(number in failing for number in range(len(texts)))
    assert {by: after["calls"][by] - count for by, count in before["calls"].items()} == {
        "fast_cpu": 0, "hf": fallen, name: len(texts) - fallen,
    }  # fmt: skip
    assert after["reasons"].get("R_EXEC_FAULT", 0) - before["reasons"].get("R_EXEC_FAULT", 0) == fallen
