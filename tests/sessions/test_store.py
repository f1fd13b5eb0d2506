"""What every store and its sessions do: revisions, edits, refusals."""

from __future__ import annotations

import threading

import pytest

from tests.sessions import model
from tests.sessions.model import FINGERPRINT, OTHER, change, filled
from tests.sessions.places import Place
from toktier.errors import (
    EnvironmentFault,
    InvalidText,
    InvalidToken,
    SessionNeedsText,
    SessionRevisionConflict,
    SessionStateMismatch,
    error_codes,
)
from toktier.sessions.records import Append


def test_the_codes_are_in_the_table() -> None:
    codes = {"SESSION_REVISION_CONFLICT", "SESSION_STATE_MISMATCH", "SESSION_NEEDS_TEXT", "STORE_CORRUPT"}
    assert codes | {"STORE_FORMAT_UNSUPPORTED"} <= set(error_codes())


def test_a_new_session_is_empty(place: Place) -> None:
    session = place.open().open("chat", FINGERPRINT)
    model.check(session, model.Model())
    assert session.last_point("tokens", 10**9).sequence == 0


def test_an_append_that_commits_nothing_changes_the_tail_alone(place: Place) -> None:
    session = filled(place, ["abc"])
    assert session.append(change(1, "", "new tail")) == 2
    assert (session.state.sequence, session.state.tail_text) == (1, b"new tail")
    assert session.ids() == model.ids_of("abc")


def test_two_writers_cannot_both_win(place: Place) -> None:
    first = filled(place, ["abc"])
    second = place.open().open("chat", FINGERPRINT)
    first.append(change(1, "first"))
    for attempt in (
        lambda: second.append(change(1, "second")),
        lambda: second.replace(second.last_point("tokens", 0), change(1, "second")),
        lambda: second.ids(),
    ):
        with pytest.raises(SessionRevisionConflict) as caught:
            attempt()
        assert caught.value.details == {"expected": 1, "found": 2}
        assert caught.value.remedy
    assert second.refresh() == first.state
    assert second.ids() == model.ids_of("abcfirst")
    assert second.append(change(2, "second")) == 3


def test_a_wrong_expectation_writes_nothing(place: Place) -> None:
    session = filled(place, ["abc"])
    with pytest.raises(SessionRevisionConflict):
        session.append(change(7, "x"))
    assert session.refresh().revision == 1


def test_several_changes_are_one_revision_and_each_a_commit_point(place: Place) -> None:
    session = filled(place, ["abc"])
    assert session.append(change(1, "first "), change(1, "second"), change(1, "", "tail")) == 2
    assert [point.text_bytes for point in session.points()] == [3, 9, 15]
    assert session.state.tail_text == b"tail"
    assert session.replace(session.points()[1], change(2, "a"), change(2, "b"), before=b"abcfirst ") == 3
    assert session.ids() == model.ids_of("abcfirst ab")
    assert place.open().verify() == []
    stale = place.open().open("chat", FINGERPRINT)
    session.append(change(3, "x"))
    with pytest.raises(SessionRevisionConflict):
        stale.append(change(3, "y"), change(3, "z"))


def test_a_session_removed_and_made_anew_is_another(place: Place) -> None:
    store = place.open()
    old = store.open("chat", FINGERPRINT)
    store.remove("chat")
    new = store.open("chat", FINGERPRINT)
    with pytest.raises(SessionRevisionConflict) as caught:
        old.append(change(0, "x"))
    assert caught.value.details["found"] is None
    with pytest.raises(SessionRevisionConflict):
        old.refresh()
    new.append(change(0, "y"))
    assert new.ids() == model.ids_of("y")


def test_another_fingerprint_is_refused_for_the_session_not_the_store(place: Place) -> None:
    filled(place, ["abc"])
    store = place.open()
    with pytest.raises(SessionStateMismatch) as caught:
        store.open("chat", OTHER)
    assert caught.value.details == {"expected": OTHER, "found": FINGERPRINT}
    assert store.open("another", OTHER).state.revision == 0


def test_an_edit_needs_the_text_before_it(place: Place) -> None:
    session = filled(place, ["first ", "second ", "third "])
    point = session.last_point("code_points", 8)
    assert point.sequence == 1
    with pytest.raises(SessionNeedsText) as caught:
        session.replace(point, change(3, "new"))
    assert caught.value.details["needed_bytes"] == 6
    with pytest.raises(SessionNeedsText):
        session.replace(point, change(3, "new"), before=b"rst ")
    with pytest.raises(SessionStateMismatch):
        session.replace(point, change(3, "new"), before=b"FIRST ")
    with pytest.raises(SessionNeedsText):
        session.text()
    assert session.ids() == model.ids_of("first second third ")
    assert session.replace(point, change(3, "new"), before=b"longer than needed: first ") == 4
    assert session.ids() == model.ids_of("first new")


def test_an_edit_at_the_end_at_the_beginning_and_with_kept_text_needs_none(place: Place) -> None:
    session = filled(place / "a", ["first ", "second "])
    session.replace(session.points()[-1], change(2, "third "))
    session.replace(session.last_point("tokens", 0), change(3, "fourth"))
    assert session.ids() == model.ids_of("fourth")
    kept = filled(place / "b", ["first ", "second " * 1000, "third"], keep_text=True)
    kept.replace(kept.points()[1], change(3, "new"))
    assert kept.text() == b"first " + b"second " * 1000 + b"new"


def test_a_point_of_before_an_edit_is_refused(place: Place) -> None:
    session = filled(place, ["first ", "second ", "third "], keep_text=True)
    first, second, third = session.points()
    session.replace(first, change(3, "other "))
    for point in (second, third):
        with pytest.raises(SessionStateMismatch):
            session.replace(point, change(4, "x"))
    session.append(change(4, "more"))
    with pytest.raises(SessionStateMismatch):
        session.replace(second, change(5, "x"))


def test_what_is_no_text_or_no_ids_is_refused_before_anything_is_written(place: Place) -> None:
    session = filled(place, ["abc"])
    for bad in (Append(1, b"1234", b"a\xff"), Append(1, b"", b"", "é".encode()[:1])):
        with pytest.raises(InvalidText):
            session.append(bad)
    for bad in (Append(1, b"123", b"a"), Append(1, b"", b"", b"", b"1")):
        with pytest.raises(InvalidToken):
            session.append(bad)
    assert session.refresh().revision == 1
    model.check(session, model.Model(["abc"], "tail", 1))


def test_threads_share_a_store(place: Place) -> None:
    store = place.open()

    def work(name: str) -> None:
        session = store.open(name, FINGERPRINT)
        for k in range(30):
            session.append(change(k, f"{name}{k} "))

    threads = [threading.Thread(target=work, args=(f"t{k}",)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        assert store.open(f"t{k}", FINGERPRINT).ids() == model.ids_of("".join(f"t{k}{n} " for n in range(30)))


def test_a_closed_store_says_so(place: Place) -> None:
    with place.open() as store:
        session = store.open("chat", FINGERPRINT)
    with pytest.raises(EnvironmentFault, match="closed"):
        session.append(change(0, "x"))
    store.close()
