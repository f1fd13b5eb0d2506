"""Killed writers, many writers, altered rows, damaged files: never a wrong id, nothing acknowledged lost."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.sessions.model import FINGERPRINT, change, filled, ids_of
from tests.sessions.places import Directory
from toktier.errors import SessionNeedsText, SessionStateMismatch, StoreCorrupt, ToktierError
from toktier.sessions.store import SessionStore

PARTS = ["first words " * 100, "second " * 900, "third\n", "fourth é " * 300]
COLUMNS = [
    *[("state", c) for c in ("revision", "sequence", "tokens", "text_bytes", "code_points", "ids_digest")],
    *[("state", c) for c in ("text_chain", "open_text", "tail_text", "tail_ids", "seal", "number")],
    *[("step", c) for c in ("tokens", "text_bytes", "code_points", "ids_digest", "text_chain", "text_digest")],
    *[("step", c) for c in ("ids", "text", "number")],
    *[("session", c) for c in ("name", "fingerprint", "keep_text", "number")],
    *[("block", c) for c in ("number", "key")],
]


def altered(value: object, choose: random.Random) -> object:
    if isinstance(value, int):
        return value + choose.choice([1, -1, 7, 1 << 20])
    if isinstance(value, str):
        return value[:-1] + "0"
    assert isinstance(value, bytes)
    if choose.random() < 0.2 or not value:
        return value + b"\0\0\0\0"
    at = choose.randrange(len(value))
    return value[:at] + bytes([value[at] ^ 1 << choose.randrange(8)]) + value[at + 1 :]


def assert_nothing_wrong(directory: Path, text: str, tail: str) -> bool:
    """Every answer is right, or a refusal. Gives whether there was a refusal or a miss."""
    refused = False
    with SessionStore(directory, timeout=1) as store:
        found = store.longest_prefix(text + "more", FINGERPRINT)
        refused |= found is None
        if found is not None:
            assert found.ids == ids_of(text.encode()[: found.text_bytes])
        session = store.open("chat", FINGERPRINT, keep_text=True)
        fresh = session.state.revision == 0
        if fresh:
            return True
        assert (session.state.tail_text.decode(), session.state.tail_ids) == (tail, ids_of(tail))
        for ask in (session.ids, session.text, lambda: edited_ids(store, text)):
            try:
                answer = ask()
                assert answer in (ids_of(text), text.encode(), b"")
            except (StoreCorrupt, SessionStateMismatch, SessionNeedsText):
                refused = True
    return refused


def refusal(directory: Path, text: str) -> str | None:
    """The code of what refused, "miss" where a part was, None where every answer was there and right."""
    try:
        return "miss" if assert_nothing_wrong(directory, text, "tail") else None
    except ToktierError as error:
        shown = str(error.to_dict())
        code = error.code
    assert "words" not in shown
    return code


def edited_ids(store: SessionStore, text: str) -> bytes:
    """After an edit, what is read is the text that was kept and what was put there; b"" then."""
    session = store.open("chat", FINGERPRINT)
    point = session.last_point("code_points", 5000)
    session.replace(point, change(session.state.revision, "edited"))
    assert session.ids() == ids_of(text[: point.code_points] + "edited")
    return b""


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_an_altered_row_never_gives_a_wrong_id(tmp_path: Path, table: str, column: str) -> None:
    filled(Directory(tmp_path / "whole"), PARTS, keep_text=True)
    SessionStore(tmp_path / "whole").close()
    text = "".join(PARTS)
    assert not assert_nothing_wrong(shutil.copytree(tmp_path / "whole", tmp_path / "untouched"), text, "tail")
    choose = random.Random(f"{table} {column}")
    count = 0
    for attempt in range(6):
        copy = shutil.copytree(tmp_path / "whole", tmp_path / str(attempt))
        with sqlite3.connect(copy / "sessions.db", isolation_level=None) as connection:
            rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
            number, value = choose.choice(rows)
            try:
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (altered(value, choose), number))
            except sqlite3.IntegrityError:
                continue
        connection.close()
        with SessionStore(copy) as store:
            assert store.verify() != []
        assert refusal(copy, text) in (None, "STORE_CORRUPT", "SESSION_STATE_MISMATCH", "miss")
        count += 1
    assert count


def test_steps_of_another_session_are_not_believed(tmp_path: Path) -> None:
    """Their chain holds; it does not end where the state row says."""
    filled(Directory(tmp_path), ["one ", "two "], name="a")
    filled(Directory(tmp_path), ["ten ", "six "], name="b")
    with sqlite3.connect(tmp_path / "sessions.db") as connection:
        first, second = (number << 32 for (number,) in connection.execute("SELECT number FROM session ORDER BY number"))
        connection.execute("DELETE FROM step WHERE number BETWEEN ? AND ? + 9", (first, first))
        connection.execute("UPDATE step SET number = number - ? + ?", (second, first))
    store = SessionStore(tmp_path)
    with pytest.raises(StoreCorrupt):
        store.open("a", FINGERPRINT).ids()
    assert {finding.session for finding in store.verify()} == {first >> 32, second >> 32}


@pytest.mark.ci
def test_a_damaged_page_or_a_cut_file_never_gives_a_wrong_id(tmp_path: Path) -> None:
    filled(Directory(tmp_path / "whole"), PARTS, keep_text=True)
    SessionStore(tmp_path / "whole").close()
    text = "".join(PARTS)
    data = (tmp_path / "whole" / "sessions.db").read_bytes()
    pages = len(data) // 1024
    choose = random.Random(1)
    refused = 0
    for page in range(pages):
        for kind in ("noise", "zeros", "bit", "cut"):
            copy = shutil.copytree(tmp_path / "whole", tmp_path / "copy")
            at = page * 1024
            damage = {
                "noise": data[:at] + choose.randbytes(1024) + data[at + 1024 :],
                "zeros": data[:at] + bytes(1024) + data[at + 1024 :],
                "bit": data[: at + 500] + bytes([data[at + 500] ^ 4]) + data[at + 501 :],
                "cut": data[:at],
            }[kind]
            (copy / "sessions.db").write_bytes(damage)
            found = refusal(copy, text)
            assert found in (None, "STORE_CORRUPT", "STORE_FORMAT_UNSUPPORTED", "SESSION_STATE_MISMATCH", "miss")
            refused += found is not None
            shutil.rmtree(copy)
    assert refused > pages
