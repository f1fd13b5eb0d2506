"""The files of a store in a directory: for their owner alone, with SQLite's settings as they are told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.sessions.model import filled
from tests.sessions.places import Directory
from toktier.sessions.store import SessionStore


def test_files_are_for_their_owner(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        filled(Directory(tmp_path / "a" / "store"), ["abc"])
    finally:
        os.umask(old)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/store")] == [0o700, 0o700]
    files = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "a" / "store").iterdir()}
    assert files == dict.fromkeys(["sessions.db", "sessions.db-wal", "sessions.db-shm"], 0o600)


@pytest.mark.parametrize(("durability", "synchronous"), [("process", 1), ("full", 2)])
def test_durability_is_what_sqlite_is_told(tmp_path: Path, durability: str, synchronous: int) -> None:
    store = SessionStore(tmp_path, durability=durability)  # type: ignore[arg-type]
    with store._database.reading() as connection:
        found = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("synchronous", "journal_mode", "page_size", "auto_vacuum")
        }
    assert found == {"synchronous": synchronous, "journal_mode": "wal", "page_size": 1024, "auto_vacuum": 2}
