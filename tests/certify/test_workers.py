"""Workers: every block once; a block whose process dies, hangs or raises is named while the rest goes on."""

from __future__ import annotations

import os
import time
from pathlib import Path

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
    prepared = prepare(tmp_path)
    monkeypatch.setenv("TINY_FAULT", fault)
    answers = list(run_blocks(prepared, range(BLOCKS), 2, block_seconds=1))
    assert [a for a in answers if isinstance(a, BlockFault)] == [BlockFault(BAD_BLOCK, said)]
    assert len(answers) == BLOCKS


def test_a_request_to_stop_drops_what_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(tmp_path)
    monkeypatch.setenv("TINY_FAULT", "hang")
    begun = time.monotonic()
    answers = list(run_blocks(prepared, range(BAD_BLOCK, BLOCKS), 1, stop=lambda: time.monotonic() > begun + 0.3))
    assert answers == []
    assert time.monotonic() - begun < 30


def test_enough_ends_at_a_block(tmp_path: Path) -> None:
    prepared = prepare(tmp_path)
    done: list[object] = []
    for answer in run_blocks(prepared, range(BLOCKS), 1, enough=lambda: len(done) >= 3):
        done.append(answer)
    assert len(done) == 3
