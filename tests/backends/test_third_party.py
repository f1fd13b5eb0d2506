"""Engines of others behind the routed tokenizer: who is chosen, what is counted, what becomes of what they throw.

Stand-ins answer here (tests/support/third_party_stand_in.py), so that every test can say that it was the engine that
did, and not the reference in its place.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toktier
from tests.support import third_party_stand_in
from tests.support.material import SMALL_DIR, changed_tokenizer
from tests.support.third_party_stand_in import VERSION, PanicException, StandIn
from toktier import Config, Tokenizer, ToktierWarning
from toktier.compat.transformers import FastTokenizer
from toktier.errors import (
    BackendExecutionFault,
    BackendUnavailable,
    ConfigInvalid,
    InvalidText,
    SessionStateMismatch,
    UnsupportedConfig,
)
from toktier.routing.vocabulary import THIRD_PARTY, BackendId

NAMES = [backend.value for backend in THIRD_PARTY]
FILE = SMALL_DIR / "cl100k_like.json"
SPECIAL = "<|endoftext|>"
TEXT = f"The reference {SPECIAL} serves 12345 texts, déjà vu."
STRICT = Config(tokenizer_fallback=False)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(name: str, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return third_party_stand_in.install(monkeypatch, name)


@pytest.fixture
def reference() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(FILE))


def opened(name: str, path: Path = FILE, **more: Any) -> Tokenizer:
    return toktier.from_file(path, policy="experimental", tokenizer=name, **more)


@pytest.fixture
def served(name: str, engine: StandIn) -> Tokenizer:
    return opened(name)


def test_the_engine_answers_and_everything_says_so(name: str, engine: StandIn, reference: tokenizers.Tokenizer) -> None:
    tok = opened(name)
    expected = reference.encode(TEXT, add_special_tokens=False).ids
    one = tok.encode(TEXT)
    assert (one.ids, one.backend) == (expected, name)
    batch = tok.encode_batch([TEXT, "", "a"])
    assert ([row.ids for row in batch], batch.backend) == ([expected, [], tok.encode("a").ids], name)
    assert (tok.count(TEXT), tok.count_batch([TEXT, "a"])) == (len(expected), [len(expected), 1])
    assert tok.encode(TEXT.encode()).ids == expected
    report = tok.explain()
    assert report["counters"]["calls"] == {"fast_cpu": 0, "hf": 0, name: 9}
    assert engine.calls
    assert (report["backend"], report["status"], report["exact_id_guarantee"]) == (name, "experimental", False)
    assert (report["last_execution_backend"], report["last_execution_path"]) == (name, "third_party")
    assert report["last_execution_fallback"] is None
    assert report["fallback_ever_occurred"] is False
    assert report["probe"]["third_party"] == {"backend": name, "version": VERSION}
    assert [gate["gate"] for gate in report["experimental_waivers"]] == ["registry"]
    assert report["verdict"].endswith("experimental: equality is not shown")
    assert repr(tok).split()[3] == f"{name},"


def test_texts_are_held_to_the_same_rules_before_an_engine_sees_them(name: str, engine: StandIn) -> None:
    tok = opened(name)
    for bad, position in (("ab\ud800", 2), (b"ab\xff", 2)):
        for call in (tok.encode, tok.count):
            with pytest.raises(InvalidText) as caught:
                call(bad)
            assert caught.value.details["position"] == position
    with pytest.raises(InvalidText) as caught:
        tok.encode_batch(["a", "b\udfff"])
    assert (caught.value.details["item"], caught.value.details["position"]) == (1, 1)
    for nothing in (None, 3, ["a"]):
        with pytest.raises(TypeError):
            tok.encode(nothing)
    with pytest.raises(TypeError):
        tok.encode_batch("ab")
    assert engine.calls == []


def test_results_have_no_offsets_and_say_so(name: str, engine: StandIn) -> None:
    encoding = opened(name).encode(TEXT, offsets=True)
    assert encoding.backend == name
    for member in ("offsets", "tokens"):
        with pytest.raises(UnsupportedConfig, match="from ids alone"):
            getattr(encoding, member)
    again = pickle.loads(pickle.dumps(encoding))
    assert (again.ids, again.backend) == (encoding.ids, name)


# what an engine throws


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
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


# who is chosen


def test_auto_never_takes_one(name: str, engine: StandIn) -> None:
    for asked in ("auto", None):
        tok = toktier.from_file(FILE, policy="experimental", tokenizer=asked)
        assert tok.encode(TEXT).backend == "fast_cpu"
        assert not any(gate["backend"] in NAMES for gate in tok.explain()["gates"])
    assert engine.calls == []


def test_the_argument_beats_the_variable_which_beats_auto(
    name: str, engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = next(n for n in NAMES if n != name)
    third_party_stand_in.install(monkeypatch, other)
    monkeypatch.setenv("TOKTIER_TOKENIZER", other)
    assert opened(name).encode("a").backend == name
    assert toktier.from_file(FILE, policy="experimental").encode("a").backend == other
    monkeypatch.setenv("TOKTIER_TOKENIZER", "")
    assert toktier.from_file(FILE, policy="experimental").encode("a").backend == "fast_cpu"
    names = ", ".join(["auto", "gpu", "fast_cpu", *NAMES, "hf"])
    for typed in (f"{name}s", name.upper(), f" {name}"):
        with pytest.raises(ConfigInvalid, match=f"{names}; did you mean '{name}'"):
            toktier.from_file(FILE, tokenizer=typed)
        monkeypatch.setenv("TOKTIER_TOKENIZER", typed)
        with pytest.raises(ConfigInvalid, match=f"^TOKTIER_TOKENIZER is .*{names}; did you mean '{name}'"):
            toktier.from_file(FILE)


@pytest.mark.parametrize("policy", ["certified", "supported"])
def test_the_variable_alone_warns_once_and_the_reference_serves(
    name: str, engine: StandIn, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.setenv("TOKTIER_TOKENIZER", name)
    with pytest.warns(ToktierWarning, match='policy="experimental"') as caught:
        tok = toktier.from_file(FILE, policy=policy)
    assert len(caught) == 1
    assert tok.encode(TEXT).backend == "hf"
    assert engine.calls == []
    monkeypatch.setenv("TOKTIER_TOKENIZER_FALLBACK", "0")
    with pytest.raises(ConfigInvalid, match="experimental"):
        toktier.from_file(FILE, policy=policy)


@pytest.mark.parametrize("said", ["0", "false", "no", "off", "OFF"])
def test_fallback_is_a_strict_boolean(name: str, engine: StandIn, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    engine.load_fails = ValueError("it cannot")
    monkeypatch.setenv("TOKTIER_TOKENIZER_FALLBACK", said)
    with pytest.raises(BackendUnavailable):
        opened(name)
    for other in ("maybe", "00", "t"):
        monkeypatch.setenv("TOKTIER_TOKENIZER_FALLBACK", other)
        with pytest.raises(ConfigInvalid, match="TOKTIER_TOKENIZER_FALLBACK"):
            opened(name)


# segments, plain, template, truncation


def test_segments_are_the_engines_own_or_refused(name: str, engine: StandIn) -> None:
    tok, parts = opened(name), [(f"{SPECIAL}user\n", True), (SPECIAL, False)]
    if not THIRD_PARTY[BackendId(name)].segments:
        for given in (parts, [("a", True)], []):
            with pytest.raises(UnsupportedConfig, match=name):
                tok.encode_segments(given)
        with pytest.raises(UnsupportedConfig, match="plain=True"):
            tok.encode(SPECIAL, plain=True)
        assert engine.calls == []
        return
    encoding = tok.encode_segments(parts)
    hf = toktier.from_file(FILE, tokenizer="hf")
    assert (encoding.ids, encoding.backend) == (hf.encode_segments(parts).ids, name)
    assert engine.calls == ["encode_segments"]
    assert tok.encode(SPECIAL, plain=True).ids == hf.encode(SPECIAL, plain=True).ids
    engine.fails = ValueError("it cannot")
    with pytest.raises(BackendExecutionFault):  # nobody stands in: others read parts otherwise
        tok.encode_segments(parts)
    with pytest.raises(InvalidText) as caught:
        tok.encode_segments([("a", True), ("\ud800", False)])
    assert caught.value.details["item"] == 1
    for given in ([("a", "False")], ["ab"]):
        with pytest.raises(TypeError, match="segment 0 is no pair"):
            tok.encode_segments(given)


def test_the_template_is_around_the_text(name: str, engine: StandIn) -> None:
    path = SMALL_DIR / "llama_like.json"
    expected = tokenizers.Tokenizer.from_file(str(path)).encode(TEXT)
    encoding = opened(name, path).encode(TEXT, add_special_tokens=True)
    assert (encoding.ids, encoding.backend) == (expected.ids, name)
    assert sum(expected.special_tokens_mask) > 0


def test_of_a_file_beyond_the_compiler_too(name: str, engine: StandIn, tmp_path: Path) -> None:
    document = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "decoder": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "added_tokens": [
            {"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True} for i, c in enumerate(["[CLS]", "[SEP]"])
        ],
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 1], "cls": ["[CLS]", 0]},
        "model": {"type": "WordLevel", "vocab": {"[CLS]": 0, "[SEP]": 1, "a": 2, "b": 3}, "unk_token": "a"},
    }  # fmt: skip
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document))
    tok = opened(name, path)
    assert (tok.encode("a b", add_special_tokens=True).ids, tok.encode("a b").ids) == ([0, 2, 3, 1], [2, 3])
    assert tok.fingerprint is None
    assert tok.explain()["counters"]["calls"][name] == 2


def test_stored_truncation(name: str, engine: StandIn, tmp_path: Path) -> None:
    cut = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    path = changed_tokenizer(FILE, tmp_path / "cut.json", truncation=cut)
    if name == "gigatoken":  # it would pass them over
        with pytest.warns(ToktierWarning, match="truncation or padding"):
            assert len(opened(name, path).encode(TEXT)) == 4
        return
    tok = opened(name, path)
    assert (len(tok.encode(TEXT)), tok.encode(TEXT).backend) == (4, name)
    for refused in (lambda: tok.session(), lambda: tok.encode_segments([("a", True)])):
        with pytest.raises(UnsupportedConfig, match="truncation or padding"):
            refused()


# decoding


def test_who_decodes(name: str, engine: StandIn, reference: tokenizers.Tokenizer) -> None:
    tok = opened(name)
    ids = reference.encode(TEXT).ids
    for skip in (True, False):
        assert tok.decode(ids, skip) == reference.decode(ids, skip_special_tokens=skip)
    own = THIRD_PARTY[BackendId(name)].decodes
    report = tok.explain()
    assert report["counters"]["decode_calls"] == {"fast_cpu": 0, "hf": 0 if own else 2, name: 2 if own else 0}
    assert report["decode"] == ("third_party" if own else "reference")
    assert report["last_decode_backend"] == (name if own else "hf")
    assert report["last_decode_fallback"] == (None if own else "R_DECODE_REFERENCE")
    stream, theirs = tok.decode_stream(), tokenizers.decoders.DecodeStream(skip_special_tokens=False)
    accented = reference.encode("déjà 漢字 🤔").ids
    assert [stream.step(i) for i in accented] == [theirs.step(reference, i) for i in accented]
    if own:
        engine.fails = PanicException("it cannot")
        assert tok.decode(ids, False) == reference.decode(ids, skip_special_tokens=False)
        assert tok.explain()["counters"]["reasons"]["R_EXEC_FAULT"] == 1


# caches, sessions, processes, threads


def test_a_prefix_cache_gives_it_the_parts_that_it_has_not(name: str, engine: StandIn) -> None:
    tok, plain = opened(name, prefix_cache=1 << 20), toktier.from_file(FILE, tokenizer="hf")
    text = ""
    for turn in range(6):
        text += f"{SPECIAL}turn {turn}: some more words{SPECIAL}"
        encoding = tok.encode(text)
        assert (encoding.ids, encoding.backend) == (plain.encode(text).ids, name)
    stats = tok.explain()["prefix_cache"]["stats"]
    assert (stats["hits"], stats["misses"]) == (5, 1)
    assert tok.explain()["counters"]["calls"] == {"fast_cpu": 0, "hf": 0, name: 6}
    engine.fails = PanicException("it cannot")
    longer = tok.encode(text + "more")
    assert (longer.ids, longer.backend) == (plain.encode(text + "more").ids, "hf")  # whole, not in parts


def test_a_session_has_the_ids_of_a_fresh_encode(name: str, engine: StandIn, tmp_path: Path) -> None:
    tok = opened(name, store=tmp_path / "store")
    with tok.session("chat") as session:
        for part in ("Hel", "lo wor", f"ld{SPECIAL}", "é"):
            patch = session.append(part)
            assert patch.replacement_ids.backend == name
            assert session.ids == tok.encode(_said(session)).ids
    assert set(tok.explain()["counters"]["calls"].items()) >= {("hf", 0), ("fast_cpu", 0)}
    again = opened(name, store=tmp_path / "store")
    assert again.session("chat").ids == tok.encode(f"Hello world{SPECIAL}é").ids
    with pytest.raises(SessionStateMismatch):  # ids of others are in no session of ours
        toktier.from_file(FILE, policy="supported", store=tmp_path / "store").session("chat")
    assert tok.ids_identity.startswith(f"{name} {VERSION} sha256:")


def test_nobody_stands_in_for_it_in_a_session(name: str, engine: StandIn, tmp_path: Path) -> None:
    engine.wrong = lambda text, ids: [i + 1 for i in ids]
    tok = opened(name, store=tmp_path / "store")
    session = tok.session("chat")
    session.append("Hello")
    held, revision = session.ids, session.revision
    for thrown in (ValueError("it cannot"), PanicException("it cannot")):
        engine.fails = thrown
        for change in (lambda: session.append(" world"), lambda: tok.encode("Hello world", session="chat")):
            with pytest.raises(BackendExecutionFault, match="it cannot"):
                change()
            assert (session.ids, session.revision) == (held, revision)
    again = opened(name, store=tmp_path / "store").session("chat")
    assert (again.ids, again.revision) == (held, revision)
    engine.fails = None
    session.append(" world")
    assert session.ids == tok.encode("Hello world").ids
    assert tok.explain()["counters"]["calls"]["hf"] == 0


def test_a_fast_tokenizer_over_it_never_explains_its_ids_by_the_reference(name: str, engine: StandIn) -> None:
    path = SMALL_DIR / "llama_like.json"
    reference = tokenizers.Tokenizer.from_file(str(path))
    fast = FastTokenizer(opened(name, path))
    assert fast("two words").tokens() == reference.encode("two words").tokens
    engine.wrong = lambda text, ids: [i + 1 for i in ids]
    wrong = fast("two words")
    assert wrong.backend == name
    assert wrong["input_ids"] == [1, *(i + 1 for i in reference.encode("two words", add_special_tokens=False).ids)]
    with pytest.raises(UnsupportedConfig, match=f"other ids than {name} gave"):
        wrong.tokens()
    pair = fast("two", "words")
    assert (pair["input_ids"], pair.backend) == (reference.encode("two", "words").ids, "hf")


def _said(session: Any) -> str:
    return f"Hello world{SPECIAL}é"[: session.text_length]


@pytest.mark.unsanitized
def test_the_fork_of_a_process_in_which_it_ran_does_not_ask_it(name: str, engine: StandIn) -> None:
    """Nor one of another tokenizer, or loaded there: threads are of the engine, not of one of its uses."""
    fresh, ran, strict = opened(name), opened(name), opened(name, config=STRICT)
    ran.encode(TEXT)
    child = os.fork()
    if child == 0:
        problem = 1
        try:
            for tok in (fresh, ran):
                assert tok.encode("a").backend == "hf"
                assert tok.explain()["counters"]["reasons"] == {"R_BACKEND_FORKED": 1}
            with pytest.warns(ToktierWarning, match="R_BACKEND_FORKED"):
                loaded = opened(name)
            assert loaded.encode("a").backend == "hf"
            for refused, error in (
                (lambda: strict.encode("a"), BackendExecutionFault),
                (lambda: opened(name, config=STRICT), BackendUnavailable),
            ):
                with pytest.raises(error, match="forked"):
                    refused()
            problem = 0
        finally:
            os._exit(problem)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ran.encode("a").backend == name


def test_pickles_and_copies_serve_by_the_same_engine(name: str, engine: StandIn) -> None:
    tok = opened(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pickle.loads(pickle.dumps(tok))
    assert again.encode("a").backend == name
    assert copy.copy(tok) is tok


def test_threads_share_one(name: str, engine: StandIn) -> None:
    tok = opened(name)
    texts = [f"text {n} {'é' * n}" for n in range(40)]
    expected = [tok.encode(text).ids for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: tok.encode(text).ids, texts * 3)) == expected * 3
    assert tok.explain()["counters"]["calls"][name] == 160
