"""Sessions as a user meets them, in memory: the same for the native engine and for the reference."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path

import pytest

import toktier
from tests.sessions.whole_sessions import TOKENIZERS, applied, edits, fresh, opened, patched, path_of
from tests.support.material import changed_tokenizer
from toktier import errors
from toktier.tokenizer import Tokenizer


def by_reference(name: str) -> Tokenizer:
    return toktier.from_file(path_of(name), policy="reference")


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("tokenizer", [opened, by_reference])
def test_patches_alone_make_the_ids(name: str, tokenizer: object) -> None:
    tok = opened(name) if tokenizer is opened else by_reference(name)
    for seed in range(12 if tokenizer is opened else 2):
        session, text, ids = tok.session(), "", list[int]()
        for edit in edits(seed, 8):
            patch = session.append(edit.text) if edit.start is None else session.replace(edit.start, edit.text)
            text = applied(text, edit)
            ids = patched(ids, patch)
            assert ids == fresh(name, text) == session.ids
            assert (session.text_length, len(session), session.revision) == (len(text), len(ids), patch.revision)
        assert session.snapshot().ids == ids
        assert session.snapshot().offsets == tok.encode(text).offsets


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_presented_transcript_is_its_fresh_encoding(name: str) -> None:
    tok = opened(name)
    text = ""
    for edit in edits(99, 20):
        text = applied(text, edit)
        encoding = tok.encode(text, session="chat")
        assert encoding.ids == fresh(name, text)
        assert encoding.offsets == tok.encode(text).offsets
        with_template = tok.encode(text.encode(), True, session="chat")
        assert with_template.ids == tok.encode(text, True).ids
        assert with_template.offsets == tok.encode(text, True).offsets
    assert tok.session("chat").ids == fresh(name, text)
    assert tok.encode(text, session=tok.session("chat")).ids == fresh(name, text)


def test_refresh_in_memory_brings_nothing_and_gives_the_revision() -> None:
    session = opened("cl100k_like").session()
    session.append("hello")
    assert session.refresh() == session.revision == 1
    assert session.text == "hello"


def test_only_what_is_new_is_encoded() -> None:
    tok = opened("cl100k_like")
    session = tok.session()
    session.append("The quick brown fox. " * 5000)
    before = tok.native_calls[1]
    for _ in range(100):
        session.append("Jumps over the lazy dog. ")
    assert tok.native_calls[1] - before < 100 * 60
    text = "The quick brown fox. " * 5000 + "Jumps over the lazy dog. " * 100
    before = tok.native_calls[1]
    assert tok.encode(text + "And again.", session=session).ids == fresh("cl100k_like", text + "And again.")
    assert tok.native_calls[1] - before < 60


def test_a_text_without_a_cut_is_right_and_reported() -> None:
    tok = opened("cl100k_like")
    session = tok.session()
    for size in (4000, 4000, 100):
        session.append(" " * size)
    assert session.ids == fresh("cl100k_like", " " * 8100)
    assert tok.explain()["counters"]["reasons"] == {"R_SESSION_NO_SAFE_CUT": 2}
    assert not tok.explain()["fallback_ever_occurred"]


def test_revisions_count_changes() -> None:
    session = opened("gemma_like").session()
    assert session.append("one").revision == 1
    assert session.append("").revision == 1
    assert session.replace(3, "").revision == 1
    assert session.replace(0, "", expected_revision=1).revision == 2
    with pytest.raises(errors.SessionRevisionConflict) as caught:
        session.append("two", expected_revision=1)
    assert caught.value.details == {"expected": 1, "found": 2}
    assert caught.value.remedy
    assert (session.revision, session.text_length, session.ids) == (2, 0, [])


@pytest.mark.parametrize("tokenizer", [opened, by_reference])
def test_what_is_no_edit_is_refused_and_changes_nothing(tokenizer: object) -> None:
    tok = opened("cl100k_like") if tokenizer is opened else by_reference("cl100k_like")
    session = tok.session()
    session.append("gr\u00fcn")
    for call, error in (
        (lambda: session.replace(5, "x"), ValueError),
        (lambda: session.replace(-1, "x"), ValueError),
        (lambda: session.replace(True, "x"), TypeError),
        (lambda: session.replace("0", "x"), TypeError),  # type: ignore[arg-type]
        (lambda: session.append(3), TypeError),
        (lambda: session.append("ab\ud83d"), errors.InvalidText),
        (lambda: session.replace(0, b"ab\xff"), errors.InvalidText),
        (lambda: session.present("gr\u00fcn und \ud83d"), errors.InvalidText),
        (lambda: tok.session(7), TypeError),  # type: ignore[arg-type]
        (lambda: tok.session(keep_text=True), errors.ConfigInvalid),
        (lambda: pickle.dumps(session), TypeError),
        (lambda: copy.deepcopy(session), TypeError),
    ):
        with pytest.raises(error):
            call()
    assert (session.ids, session.revision) == (fresh("cl100k_like", "gr\u00fcn"), 1)


def test_the_place_of_a_fault_is_told() -> None:
    session = opened("cl100k_like").session()
    session.append("\u00fc" * 20000)
    for text, position in (("ab\ud83d", 2), (b"\xc3\xbcb\xff", 3), ("\u00fc" * 19000 + "\ud83d", 19000)):
        with pytest.raises(errors.InvalidText) as caught:
            session.present(text)
        assert caught.value.details == {"position": position}


def test_a_name_is_one_session_of_one_tokenizer() -> None:
    tok, other = opened("cl100k_like"), opened("o200k_like")
    assert tok.session("a") is tok.session("a")
    assert tok.session("a") is not other.session("a")
    assert tok.session() is not tok.session()
    with pytest.raises(errors.SessionStateMismatch):
        other.encode("x", session=tok.session("a"))
    for name in ("", "\0", "\ud83d", "x" * 100_000):
        assert tok.encode("text", session=name).ids == fresh("cl100k_like", "text")


def test_stored_truncation_and_padding_refuse_sessions(tmp_path: Path) -> None:
    truncation = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    file = changed_tokenizer(path_of("cl100k_like"), tmp_path / "tokenizer.json", truncation=truncation)
    tok = toktier.from_file(file, policy="supported")
    for call in (lambda: tok.session(), lambda: tok.encode("x", session="a")):
        with pytest.raises(errors.UnsupportedConfig) as caught:
            call()
        assert caught.value.remedy


def test_threads_take_turns() -> None:
    tok = opened("cl100k_like")
    session = tok.session()
    part = "The quick brown fox. " * 300

    def work() -> None:
        for _ in range(20):
            session.append(part)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session.revision == 80
    assert session.ids == tok.encode(part * 80).ids
