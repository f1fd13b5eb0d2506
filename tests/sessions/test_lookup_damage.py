"""Rows of a directory's store that were altered: a look-up counts a miss, and never gives a wrong id."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.sessions import model
from tests.sessions.model import FINGERPRINT, TEXT, filled, remembered
from tests.sessions.places import Directory
from toktier.sessions.store import SessionStore


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
    filled(Directory(tmp_path), [TEXT])
    store = SessionStore(tmp_path)
    with sqlite3.connect(tmp_path / "sessions.db") as other:
        other.execute("UPDATE step SET ids = zeroblob(length(ids))")
    assert store.longest_prefix(TEXT, FINGERPRINT) is None
    assert store.counters.failed_checks == 1
    assert [info.name for info in store.sessions()] == ["chat"]
