"""Engines of others behind the routed tokenizer: who is chosen, and what holds of what they serve.

Stand-ins answer here (tests/support/third_party_stand_in.py), so that every test can say that it was the engine that
did, and not the reference in its place. Not here: what they throw (test_third_party_faults.py).
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

import pytest
import tokenizers

import toktier
from tests.backends.third_party import FILE, NAMES, SPECIAL, STRICT, TEXT, opened
from tests.support import third_party_stand_in
from tests.support.material import SMALL_DIR, changed_tokenizer
from tests.support.third_party_stand_in import VERSION, PanicException, StandIn
from toktier import ToktierWarning
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
