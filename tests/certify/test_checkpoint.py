"""The run directory: what a kill tears is dropped, what an edit changes is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.certify.tiny_suites import prepare, start
from toktier.certify import checkpoint as checkpoints
from toktier.certify.checkpoint import BLOCKS, COMPLETE, PLAN, Writer
from toktier.certify.plan import Shard
from toktier.certify.workers import run_block
from toktier.errors import ArtifactNotFound, EnvironmentFault, EvidenceIncomplete, EvidenceInvalid, LockTimeout
from toktier.program.engine_identity import engine_identity


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A run with six of its blocks done."""
    prepared = prepare(tmp_path / "home")
    state = start(prepared, tmp_path / "run")
    with Writer(state) as writer:
        for index in (3, 0, 4, 1, 20, 2):
            writer.append(run_block(prepared, index))
    return tmp_path / "run"


def test_what_was_written_is_read(directory: Path) -> None:
    state = checkpoints.read(directory)
    assert sorted(state.results) == [0, 1, 2, 3, 4, 20]
    assert state.missing == list(range(5, 20))
    assert state.target["corpora"] == []
    assert state.build == {"compiler": "some", "identity": engine_identity()}


def test_a_torn_last_line_is_dropped_wherever_it_is_torn(directory: Path) -> None:
    data = (directory / BLOCKS).read_bytes()
    last = data[:-1].rfind(b"\n") + 1
    for end in (last, last + 1, (last + len(data)) // 2, len(data) - 1):
        (directory / BLOCKS).write_bytes(data[:end] + (b"\0" * 40 if end == last + 1 else b""))
        state = checkpoints.read(directory)
        assert sorted(state.results) == [0, 1, 3, 4, 20]
        with Writer(state):
            pass
        assert (directory / BLOCKS).read_bytes() == data[:last]


def test_any_other_fault_is_refused(directory: Path) -> None:
    data = (directory / BLOCKS).read_bytes()
    lines = data.splitlines(keepends=True)
    bad = [
        b"".join([*lines[:2], *lines[3:]]),  # a line less
        b"".join([lines[0], lines[2], lines[1], *lines[3:]]),
        b"".join([*lines, lines[-1]]),
        data.replace(b'"mismatches":0', b'"mismatches":1', 1),
        data.replace(b'"index":4', b'"index":5'),
        b"{}\n" + data,
        b"",
        lines[0].replace(b'"shard":[1,1]', b'"shard":[1,2]') + b"".join(lines[1:]),
        data[: len(lines[0]) + 10] + b"\n" + b"".join(lines[2:]),
    ]
    for content in bad:
        (directory / BLOCKS).write_bytes(content)
        with pytest.raises(EvidenceInvalid):
            checkpoints.read(directory)


def test_the_plan_of_another_run_is_refused(directory: Path, tmp_path: Path) -> None:
    (directory / PLAN).write_bytes(prepare(tmp_path / "home", seed=9).plan.to_json())
    with pytest.raises(EvidenceInvalid, match="another plan"):
        checkpoints.read(directory)


def test_no_run_no_second_run_and_not_two_at_once(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactNotFound):
        checkpoints.read(tmp_path / "absent")
    with pytest.raises(EnvironmentFault, match="holds a run already"):
        start(prepare(tmp_path / "home"), directory, Shard(1, 2))
    with Writer(checkpoints.read(directory)), pytest.raises(LockTimeout), Writer(checkpoints.read(directory)):
        pass


def test_a_run_that_was_killed_before_it_began_is_in_nobodys_way(directory: Path, tmp_path: Path) -> None:
    """Of the plan there is a part, or all, and of blocks nothing: `--resume` has nothing to go on with."""
    prepared = prepare(tmp_path / "home")
    killed = tmp_path / "killed"
    killed.mkdir()
    (killed / ".tmp-12-0123").write_bytes(b"{")
    (killed / PLAN).write_bytes((directory / PLAN).read_bytes())
    state = start(prepared, killed)
    assert checkpoints.read(killed).missing == state.missing
    checkpoints.seal(killed)
    (killed / ".tmp-12-0123").unlink()
    checkpoints.check_seal(killed)
    with pytest.raises(EnvironmentFault, match="holds a run already"):
        start(prepared, killed)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"schema": "of somebody else"}'])
def test_a_file_of_somebody_that_is_named_as_a_plan_is_kept(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / PLAN).write_bytes(content)
    with pytest.raises(EnvironmentFault, match="holds a run already"):
        start(prepare(tmp_path / "home"), tmp_path / "run")
    assert (tmp_path / "run" / PLAN).read_bytes() == content


def test_the_seal_names_every_file(directory: Path) -> None:
    with pytest.raises(EvidenceIncomplete, match="did not end"):
        checkpoints.check_seal(directory)
    checkpoints.seal(directory)
    checkpoints.check_seal(directory)
    (directory / "more.txt").write_text("x")
    with pytest.raises(EvidenceInvalid, match="is not listed"):
        checkpoints.check_seal(directory)
    (directory / "more.txt").unlink()
    (directory / PLAN).write_bytes((directory / PLAN).read_bytes() + b" ")
    with pytest.raises(EvidenceInvalid, match="was changed"):
        checkpoints.check_seal(directory)
    (directory / PLAN).unlink()
    with pytest.raises(EvidenceInvalid, match="is missing"):
        checkpoints.check_seal(directory)
    assert len((directory / COMPLETE).read_text().splitlines()) == 2


def test_results_are_kept_as_they_are(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_FAULT", "value")
    prepared = prepare(tmp_path / "home")
    result = run_block(prepared, 15)
    assert result.failures
    state = checkpoints.read(directory)
    with Writer(state) as writer:
        writer.append(result)
    assert checkpoints.read(directory).results[15] == result
    assert all(json.loads(line)["chain"] for line in (directory / BLOCKS).read_bytes().splitlines())


def rewritten(directory: Path, line: int, **changes: Any) -> None:
    """blocks.jsonl with members of a line replaced, and a chain that holds."""
    records = [json.loads(row) for row in (directory / BLOCKS).read_bytes().splitlines()]
    records[line] |= changes
    chain, rows = "", []
    for record in records:
        record.pop("chain")
        row, chain = checkpoints._line(record, chain)
        rows.append(row)
    (directory / BLOCKS).write_bytes(b"".join(rows))


COUNTS = {"documents": 1, "utf8_bytes": 1, "code_points": 1, "ids": 1, "checks": 1, "mismatches": 0, "routed": 0}
TEXT = {
    "suite": "words",
    "block": 0,
    "what": "ids",
    "times": 1,
    "text": "a",
    "add_special_tokens": False,
    "plain": False,
}


WRONG: tuple[tuple[int, str, tuple[Any, ...]], ...] = (
    (1, "counts", tuple({**COUNTS, "documents": value} for value in ("1", -1, True, None, 1 << 50))),
    (1, "counts", ({**COUNTS, "routed": 2}, {"documents": 1}, None)),
    (1, "index", ("3", True, [], -1)),
    (1, "digest", ("ab", "-" * 64, "\u00e9" * 64, 5)),
    (1, "failures", ({}, [1], [{}], [{**TEXT, "text": 5}], [{**TEXT, "plain": 0}], [{**TEXT, "times": "1"}])),
    (0, "shard", ([1, 0], [0, 1], ["1", "1"], [2, 1], 1)),
    (0, "target", (None, [], {}, {"artifact": 5}, {"artifact": "x", "corpora": [5]})),
    (0, "build", (None,)),
)


@pytest.mark.parametrize(
    ("line", "member", "value"), [(line, member, value) for line, member, values in WRONG for value in values]
)
def test_what_no_run_wrote_is_refused_although_its_chain_holds(
    directory: Path, line: int, member: str, value: Any
) -> None:
    rewritten(directory, line)
    checkpoints.read(directory)
    rewritten(directory, line, **{member: value})
    with pytest.raises(EvidenceInvalid):
        checkpoints.read(directory)


@pytest.mark.parametrize("value", [b"1.5", b"NaN", b"99999999999999999999", b'"\\ud800"'])
def test_numbers_and_strings_without_a_canonical_form_are_refused(directory: Path, value: bytes) -> None:
    data = (directory / BLOCKS).read_bytes()
    (directory / BLOCKS).write_bytes(data.replace(b'"mismatches":0', b'"mismatches":' + value, 1))
    with pytest.raises(EvidenceInvalid):
        checkpoints.read(directory)


def test_a_directory_with_anything_in_it_is_left_as_it_is(tmp_path: Path) -> None:
    mine = tmp_path / "mine" / "failures" / "notes.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("not of a run")
    with pytest.raises(EnvironmentFault, match="is not empty"):
        start(prepare(tmp_path / "home"), tmp_path / "mine")
    assert mine.read_text() == "not of a run"
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["failures"]
