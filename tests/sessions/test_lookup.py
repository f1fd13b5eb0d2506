"""The longest stored prefix: found, verified, or a counted miss."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.sessions import model
from tests.sessions.model import FINGERPRINT, OTHER, change, filled
from toktier.errors import InvalidText
from toktier.sessions import lookup
from toktier.sessions.store import SessionStore

TEXT = "".join(chr(97 + (k * k // 7) % 26) for k in range(40_000))


def remembered(store: SessionStore, text: str, size: int) -> int:
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    number = store.remember(FINGERPRINT, [change(k, part) for k, part in enumerate(parts)])
    assert number is not None
    return number


@pytest.mark.parametrize("size", [1000, 4096, 7000, 40_000])
def test_the_last_point_of_the_text_is_found(tmp_path: Path, size: int) -> None:
    store = SessionStore(tmp_path)
    remembered(store, TEXT, size)
    for length in (40_000, 39_999, 20_000, 5000):
        found = store.longest_prefix(TEXT[:length] + "what comes after", FINGERPRINT)
        expected = length if length == len(TEXT) else length // size * size
        assert (found.text_bytes if found else 0) == (expected if expected >= 4096 else 0)
        if found:
            assert found.ids == model.ids_of(TEXT[:expected])
            assert found.tokens == found.code_points == expected
    assert store.longest_prefix("x" + TEXT, FINGERPRINT) is None
    assert store.longest_prefix(TEXT, OTHER) is None
    assert store.longest_prefix("", FINGERPRINT) is None
    assert store.counters.failed_checks == 0
    assert store.counters.lookups == store.counters.hits + store.counters.misses == 7


def test_named_sessions_are_found_too(tmp_path: Path) -> None:
    filled(tmp_path, [TEXT[:5000], TEXT[5000:9000]])
    found = SessionStore(tmp_path).longest_prefix(TEXT, FINGERPRINT)
    assert found is not None
    assert found.text_bytes == 9000


def test_a_session_that_shares_more_but_has_no_point_there_hides_no_other(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    remembered(store, TEXT[:12_000], 6000)
    remembered(store, TEXT, 40_000)
    found = store.longest_prefix(TEXT[:30_000], FINGERPRINT)
    assert found is not None
    assert found.text_bytes == 12_000


def test_an_edited_session_is_found_by_its_new_text_alone(tmp_path: Path) -> None:
    session = filled(tmp_path, [TEXT[:9000], TEXT[9000:20_000]], keep_text=True)
    session.replace(session.points()[0], change(2, "y" * 11_000))
    store = SessionStore(tmp_path)
    for text, size in ((TEXT, 9000), (TEXT[:9000] + "y" * 12_000, 20_000)):
        found = store.longest_prefix(text, FINGERPRINT)
        assert found is not None
        assert (found.text_bytes, found.ids) == (size, model.ids_of(text[:size]))


@pytest.mark.parametrize("statement", [
    "UPDATE step SET ids = zeroblob(length(ids)) WHERE number & 4294967295 = 3",
    "UPDATE step SET text_digest = zeroblob(32)",
    "UPDATE step SET ids_digest = zeroblob(32)",
    "UPDATE step SET tokens = tokens + 1",
    "DELETE FROM step WHERE number & 4294967295 = 2",
    "UPDATE state SET tokens = 1",
    "DELETE FROM state",
])  # fmt: skip
def test_a_failed_check_is_a_counted_miss_and_the_entry_goes(tmp_path: Path, statement: str) -> None:
    store = SessionStore(tmp_path)
    remembered(store, TEXT, 4096)
    with sqlite3.connect(tmp_path / "sessions.db") as other:
        other.execute(statement)
    assert store.longest_prefix(TEXT, FINGERPRINT) is None
    assert (store.counters.failed_checks, store.counters.misses) == (1, 1)
    assert store.sessions() == []
    assert store.longest_prefix(TEXT, FINGERPRINT) is None
    assert store.counters.failed_checks == 1


def test_keys_of_another_text_do_not_make_a_hit(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    first = remembered(store, TEXT, 4096)
    second = remembered(store, "z" * 40_000, 4096)
    with sqlite3.connect(tmp_path / "sessions.db") as other:
        other.execute("UPDATE block SET key = (SELECT key FROM block b WHERE b.number = block.number - ? + ?)"
                      " WHERE number >> 32 = ?", (first << 32, second << 32, first))  # fmt: skip
    found = store.longest_prefix("z" * 40_000, FINGERPRINT)
    assert found is not None
    assert (found.session, found.ids) == (second, model.ids_of("z" * found.text_bytes))
    assert store.longest_prefix(TEXT, FINGERPRINT) is None


def test_a_damaged_named_session_stays_for_its_owner(tmp_path: Path) -> None:
    filled(tmp_path, [TEXT])
    store = SessionStore(tmp_path)
    with sqlite3.connect(tmp_path / "sessions.db") as other:
        other.execute("UPDATE step SET ids = zeroblob(length(ids))")
    assert store.longest_prefix(TEXT, FINGERPRINT) is None
    assert store.counters.failed_checks == 1
    assert [info.name for info in store.sessions()] == ["chat"]


def test_what_was_used_last_is_evicted_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "TOUCH_NANOSECONDS", 0)
    store = SessionStore(tmp_path)
    texts = [str(k) * 10_000 for k in range(4)]
    numbers = [remembered(store, text, 5000) for text in texts]
    held = store.sessions()[0].held_bytes
    assert store.longest_prefix(texts[0], FINGERPRINT) is not None
    store.budget_bytes = 4 * held
    numbers.append(remembered(store, "4" * 10_000, 5000))
    assert {info.number for info in store.sessions()} == set(numbers) - {numbers[1]}
    assert store.evict(2 * held) == numbers[2:4]
    assert store.remember(FINGERPRINT, [change(0, "x" * 100_000)]) is None
    assert {info.number for info in store.sessions()} == {numbers[0], numbers[4]}


def test_a_lone_surrogate_is_refused_with_its_position(tmp_path: Path) -> None:
    with pytest.raises(InvalidText) as caught:
        SessionStore(tmp_path).longest_prefix("ab\ud800", FINGERPRINT)
    assert caught.value.details == {"position": 2}
