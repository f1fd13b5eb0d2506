"""Killed writers, many writers, altered rows, damaged files: never a wrong id, nothing acknowledged lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import struct
import time
from array import array
from pathlib import Path

import pytest

from tests.sessions import model
from tests.sessions.model import FINGERPRINT, change, filled, ids_of
from toktier.errors import SessionNeedsText, SessionRevisionConflict, SessionStateMismatch, StoreCorrupt, ToktierError
from toktier.sessions.records import Append
from toktier.sessions.store import SessionStore

KILLS = [pytest.param(50, marks=pytest.mark.ci), pytest.param(1000, marks=pytest.mark.full)]


def part(revision: int) -> str:
    return f"append {revision} " * (1 + revision * revision % 40)


def append_until_killed(directory: Path, pipe: int, seed: int) -> None:
    """Appends and edits; each revision goes to the pipe after it was acknowledged."""
    choose = random.Random(seed)
    store = SessionStore(directory)
    session = store.open("chat", FINGERPRINT, keep_text=True)
    while True:
        revision = session.state.revision
        if revision % 7 == 6:
            point = session.last_point("tokens", max(0, session.state.tokens - 50))
            session.replace(point, change(revision, part(revision)))
        else:
            session.append(change(revision, part(revision), f"tail {revision}"))
        os.write(pipe, struct.pack("<I", session.state.revision))
        if choose.random() < 0.02:
            store.compact()


def replayed(revision: int) -> model.Model:
    """What the session is at a revision."""
    expected = model.Model()
    for at in range(revision):
        if at % 7 == 6:
            limit, keep = max(0, len(expected.text) - 50), 0
            while keep < len(expected.parts) and expected.ends[keep] <= limit:
                keep += 1
            expected.replace(keep, part(at), "")
        else:
            expected.append(part(at), f"tail {at}")
    return expected


@pytest.mark.unsanitized
@pytest.mark.parametrize("rounds", KILLS)
def test_a_killed_writer_loses_nothing_acknowledged(tmp_path: Path, rounds: int) -> None:
    choose = random.Random(rounds)
    acknowledged = 0
    for seed in range(rounds):
        if acknowledged > 150:  # short histories: the model replays all of it
            shutil.rmtree(tmp_path / "store")
            acknowledged = 0
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(read)
                append_until_killed(tmp_path / "store", write, seed)
            finally:
                os._exit(1)
        os.close(write)
        time.sleep(choose.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        with os.fdopen(read, "rb") as pipe:
            sent = pipe.read()
        if sent:
            acknowledged = struct.unpack("<I", sent[-4:])[0]
        with SessionStore(tmp_path / "store") as store:
            session = store.open("chat", FINGERPRINT, keep_text=True)
            assert session.state.revision in (acknowledged, acknowledged + 1)
            model.check(session, replayed(session.state.revision))
            assert store.verify() == []
            acknowledged = session.state.revision


@pytest.mark.ci
@pytest.mark.unsanitized
def test_processes_append_to_one_store(tmp_path: Path) -> None:
    """To one session, where each retries what conflicts, and each to one of its own."""
    processes, appends = 4, 40
    children = []
    for process in range(processes):
        child = os.fork()
        if child == 0:
            try:
                store = SessionStore(tmp_path / "store")
                shared = store.open("shared", FINGERPRINT)
                own = store.open(f"own {process}", FINGERPRINT)
                for k in range(appends):
                    own.append(change(k, f"{k} "))
                    ids = array("I", [process * appends + k]).tobytes()
                    while True:
                        try:
                            shared.append(Append(shared.state.revision, ids, b"x"))
                            break
                        except SessionRevisionConflict:
                            shared.refresh()
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * processes
    store = SessionStore(tmp_path / "store")
    session = store.open("shared", FINGERPRINT)
    assert session.state.revision == processes * appends
    assert sorted(memoryview(session.ids()).cast("I")) == list(range(processes * appends))
    for process in range(processes):
        assert store.open(f"own {process}", FINGERPRINT).ids() == ids_of("".join(f"{k} " for k in range(appends)))
    assert store.verify() == []


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
    filled(tmp_path / "whole", PARTS, keep_text=True)
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
    filled(tmp_path, ["one ", "two "], name="a")
    filled(tmp_path, ["ten ", "six "], name="b")
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
    filled(tmp_path / "whole", PARTS, keep_text=True)
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
