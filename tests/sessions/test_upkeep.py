"""Compaction, verification, and what they leave alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.sessions import model
from tests.sessions.model import FINGERPRINT, change, filled
from tests.sessions.places import Directory
from toktier.sessions import upkeep
from toktier.sessions.store import SessionStore


def rows_with_ids(path: Path) -> int:
    with sqlite3.connect(path / "sessions.db") as connection:
        return int(connection.execute("SELECT count(*) FROM step WHERE length(ids) > 0").fetchone()[0])


@pytest.mark.parametrize("keep_text", [False, True])
def test_small_rows_become_few(tmp_path: Path, keep_text: bool) -> None:
    session = filled(Directory(tmp_path), [f"{k:06d} " * 40 for k in range(300)], keep_text=keep_text)
    expected = model.Model([f"{k:06d} " * 40 for k in range(300)], "tail", 300)
    store = SessionStore(tmp_path)
    before = store.disk_bytes
    points = session.points()
    assert store.compact() == 300
    assert rows_with_ids(tmp_path) < 300 * 280 * 4 // upkeep.CHUNK_BYTES * (4 if keep_text else 1) + 3
    assert store.disk_bytes < before
    model.check(session, expected)
    assert session.points() == points
    assert store.verify() == []
    assert store.compact() <= 2


def test_an_edit_inside_a_merged_row_splits_it(tmp_path: Path) -> None:
    parts = [f"{k:06d} " * 10 for k in range(50)]
    for kept in range(0, 51, 7):
        session = filled(Directory(tmp_path / str(kept)), parts, keep_text=True)
        store = SessionStore(tmp_path / str(kept))
        store.compact()
        expected = model.Model(list(parts), "tail", 50)
        model.apply(session, expected, model.Step(kept / 51 + 0.001, "new", "t"))
        assert len(expected.parts) == kept + 1
        model.check(session, expected)
        session.append(change(51, "more", "t"))
        expected.append("more", "t")
        model.check(session, expected)
        store.compact()
        model.check(session, expected)
        assert store.verify() == []


def test_removing_gives_space_back(tmp_path: Path) -> None:
    filled(Directory(tmp_path), ["x" * 100_000], name="a")
    filled(Directory(tmp_path), ["y" * 100], name="b")
    store = SessionStore(tmp_path)
    store.remove("a")
    store.compact()
    assert (tmp_path / "sessions.db").stat().st_size < 40_000
    assert store.open("b", FINGERPRINT).ids() == model.ids_of("y" * 100)


@pytest.mark.parametrize("statement", [
    "UPDATE step SET code_points = code_points + 1 WHERE number & 4294967295 = 2",
    "UPDATE step SET text_chain = zeroblob(32) WHERE number & 4294967295 = 2",
    "UPDATE step SET text = x''",
    "UPDATE step SET ids = x'' WHERE number & 4294967295 = 1",
    "DELETE FROM step WHERE number & 4294967295 = 2",
    "INSERT INTO step SELECT number + 10, tokens, text_bytes, code_points, ids_digest, text_chain, text_digest, ids,"
    " text FROM step WHERE number & 4294967295 = 3",
    "INSERT INTO block SELECT number + (9 << 32), key FROM block",
    "DELETE FROM block WHERE number & 4294967295 = 2",
    "UPDATE block SET key = key + 1 WHERE number & 4294967295 = 2",
    "UPDATE state SET tail_text = x'00'",
    "UPDATE state SET revision = revision + 1",
    "UPDATE session SET name_key = zeroblob(32)",
    "UPDATE session SET fingerprint = 'x'",
    "UPDATE session SET keep_text = 0",
    "DELETE FROM session",
    "DELETE FROM state",
])  # fmt: skip
def test_verify_finds_what_was_altered(tmp_path: Path, statement: str) -> None:
    filled(Directory(tmp_path), ["a" * 5000, "b" * 5000, "c" * 5000], keep_text=True)
    store = SessionStore(tmp_path)
    assert store.verify() == store.verify("chat") == []
    with sqlite3.connect(tmp_path / "sessions.db") as connection:
        assert connection.execute(statement).rowcount > 0
    findings = store.verify()
    assert findings
    assert not any("aaa" in finding.sentence for finding in findings)


def test_a_name_that_is_not_there_has_no_findings(tmp_path: Path) -> None:
    assert SessionStore(tmp_path).verify("nobody") == []
