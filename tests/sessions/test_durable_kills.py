"""A process that appends is killed at any moment: what it was told is done is there, and the ids are right."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sessions.whole_sessions import fresh, opened
from tests.support.material import ROOT

NAME = "cl100k_like"
WRITER = """
import sys
from tests.sessions.whole_sessions import opened
session = opened("cl100k_like", store=sys.argv[1]).session(sys.argv[2], keep_text=True)
for k in range(session.revision, 10**9):
    session.append(f"line {k} of the 'tale', " + "word " * (k * 7 % 40) + ("\\n" if k % 3 else " "))
    sys.stdout.write(f"{session.revision} {session.text_length}\\n")
    sys.stdout.flush()
"""


def killed_rounds(place: Path, rounds: int, seed: int) -> int:
    """Appends that were acknowledged in all rounds."""
    draw, total = random.Random(seed), 0
    for number in range(rounds):
        if number % 20 == 0:  # a longer text takes the reference longer in each round
            name = f"chat {number}"
        command = [sys.executable, "-c", WRITER, str(place), name]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            told = [writer.stdout.readline() for _ in range(2)]  # it is at it, however long an append takes here
            time.sleep(draw.random() * 0.02)
            writer.send_signal(signal.SIGKILL)
            told += [line for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        revision, length = map(int, told[-1].split())
        tok = opened(NAME, store=place)
        session = tok.session(name)
        assert session.revision >= revision
        assert session.text_length >= length
        total += revision
        assert session.ids == fresh(NAME, session.text)
        assert tok._store is not None
        assert tok._store.verify(name) == []
        tok._store.close()
    return total


def test_killed_while_appending(tmp_path: Path) -> None:
    assert killed_rounds(tmp_path, 3, 1) > 3


@pytest.mark.full
def test_killed_while_appending_a_thousand_times(tmp_path: Path) -> None:
    assert killed_rounds(tmp_path, 1000, 2) > 1000


CROWD = """
import sys
from tests.sessions.whole_sessions import opened
from toktier.errors import SessionRevisionConflict
shared = opened("cl100k_like", store=sys.argv[1]).session("shared", keep_text=True)
own = opened("cl100k_like", store=sys.argv[1]).session(sys.argv[2], keep_text=True)
for k in range(int(sys.argv[3])):
    own.append(f"{sys.argv[2]} {k}\\n")
    while True:
        try:
            shared.append(f"{sys.argv[2]} {k}\\n")
            break
        except SessionRevisionConflict:
            shared.refresh()
"""


@pytest.mark.full
def test_eight_processes_append_to_one_store(tmp_path: Path) -> None:
    count = 200
    crowd = [
        subprocess.Popen([sys.executable, "-c", CROWD, str(tmp_path), f"writer{n}", str(count)], cwd=ROOT)
        for n in range(8)
    ]
    assert [process.wait() for process in crowd] == [0] * 8
    tok = opened(NAME, store=tmp_path)
    assert tok._store is not None
    assert tok._store.verify() == []
    shared = tok.session("shared")
    lines = shared.text.splitlines()
    assert shared.revision == 8 * count
    assert shared.ids == fresh(NAME, shared.text)
    for n in range(8):
        expected = [f"writer{n} {k}" for k in range(count)]
        assert [line for line in lines if line.startswith(f"writer{n} ")] == expected
        assert tok.session(f"writer{n}").ids == fresh(NAME, "".join(f"{line}\n" for line in expected))
