"""Workers: every block once; a block whose process dies, hangs or raises is named while the rest goes on."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.certify.tiny_suites import BAD_BLOCK, BLOCKS, prepare
from toktier.certify.checkpoint import BlockResult
from toktier.certify.workers import BlockFault, run_block, run_blocks

pytestmark = pytest.mark.unsanitized


def children() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


def test_every_block_once_and_as_in_this_process(tmp_path: Path) -> None:
    prepared = prepare(tmp_path)
    before = children()
    answers = list(run_blocks(prepared, range(BLOCKS), 3))
    assert sorted(a.index for a in answers) == list(range(BLOCKS))
    results = {a.index: a for a in answers if isinstance(a, BlockResult)}
    assert all(results[i] == run_block(prepared, i) for i in (0, 7, 15))
    assert results[0].counts.checks >= 10
    assert children() == before


@pytest.mark.parametrize(
    ("fault", "said"),
    [("raise", "ValueError: planted"), ("die", "its process was ended by SIGKILL"), ("hang", "no result after 1 s")],
)
def test_a_bad_block_is_named_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    """The clock stands still while a block is left that answers: none but the one that hangs is late."""
    prepared = prepare(tmp_path)
    monkeypatch.setenv("TINY_FAULT", fault)
    answers: list[BlockResult | BlockFault] = []

    def clock() -> float:
        return 2.0 if fault == "hang" and len(answers) == BLOCKS - 1 else 0.0

    monkeypatch.setattr("toktier.certify.workers.time", SimpleNamespace(monotonic=clock))
    for answer in run_blocks(prepared, range(BLOCKS), 2, block_seconds=1):
        answers.append(answer)  # one by one: the clock looks at them meanwhile
    assert [a for a in answers if isinstance(a, BlockFault)] == [BlockFault(BAD_BLOCK, said)]
    assert len(answers) == BLOCKS


def test_a_request_to_stop_drops_what_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(tmp_path)
    monkeypatch.setenv("TINY_FAULT", "hang")
    begun, asked = time.monotonic(), itertools.count()
    # It begins the first block, and is asked to stop from then on.
    answers = list(run_blocks(prepared, range(BAD_BLOCK, BLOCKS), 1, stop=lambda: next(asked) > 0))
    assert answers == []
    assert next(asked) > 1
    assert time.monotonic() - begun < 300  # it hangs for 1000 s


def test_enough_ends_at_a_block(tmp_path: Path) -> None:
    prepared = prepare(tmp_path)
    done: list[object] = []
    for answer in run_blocks(prepared, range(BLOCKS), 1, enough=lambda: len(done) >= 3):
        done.append(answer)
    assert len(done) == 3
