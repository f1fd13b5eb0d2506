"""Whole runs: shards, one killed and resumed, are one run; a signal leaves a run that goes on; no partial file."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.certify.tiny_suites import BLOCKS, MINI, Silent, build, prepare, start
from tests.cli.command import environment, validator
from tests.support.material import ROOT
from toktier.canonical import TAG_CERTIFY_PLAN, document_digest
from toktier.certify import checkpoint as checkpoints
from toktier.certify.checkpoint import BlockResult
from toktier.certify.evidence import FILE_NAME, read_evidence
from toktier.certify.failures import failure_documents
from toktier.certify.merge import merge
from toktier.certify.outcome import Against, Outcome
from toktier.certify.plan import Plan, Shard
from toktier.certify.runner import JUNIT, SUMMARY, RunOptions, run
from toktier.certify.tally import Counts, Tally
from toktier.errors import EnvironmentFault, EvidenceIncomplete, EvidenceInvalid

pytestmark = pytest.mark.unsanitized
TARGET = {"artifact": str(MINI), "corpora": []}
PROGRAM = ROOT / "tests" / "certify" / "tiny_suites.py"


def command(home: Path, *arguments: str, fault: str = "") -> subprocess.Popen[bytes]:
    """Under the fault `held` it goes on when the file `gate` beside its home is there."""
    env = environment(home, TINY_FAULT=fault, TINY_GATE=str(home.with_name("gate")))
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), "certify", *arguments], cwd=ROOT, env=env,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(child: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=600)
    return child.returncode, out.decode(), err.decode()


def wait_for_blocks(directory: Path, number: int) -> None:
    """Until that many results lie in the checkpoint."""
    deadline = time.monotonic() + 300
    path = directory / checkpoints.BLOCKS
    while not path.exists() or path.read_bytes().count(b"\n") <= number:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def one_run(tmp_path: Path, name: str = "one", **options: Any) -> Any:
    prepared = prepare(tmp_path / "home")
    return run(prepared, start(prepared, tmp_path / name), RunOptions(workers=2, **options))


def test_a_run_passes_and_leaves_everything(tmp_path: Path) -> None:
    report = one_run(tmp_path)
    assert report.outcome is Outcome.PASSED
    assert report.reasons == []
    directory = tmp_path / "one"
    checkpoints.check_seal(directory)
    names = {p.name for p in directory.iterdir()}
    assert names == {checkpoints.PLAN, checkpoints.BLOCKS, FILE_NAME, JUNIT, SUMMARY, checkpoints.COMPLETE}
    document, _ = read_evidence(directory / FILE_NAME)
    validator("evidence").validate(document)
    assert document["totals"]["documents"] == 130
    assert document["totals"]["checks"] >= 130 + 40
    assert document["plan"]["suites"][0]["facts"] == {"note": "all pairs", "words": 10}


def test_two_runs_on_different_days_give_one_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = one_run(tmp_path, "one").evidence
    monkeypatch.setattr("time.gmtime", lambda *_: time.struct_time((2031, 2, 3, 4, 5, 6, 0, 34, 0)))
    prepared = prepare(tmp_path / "other home")
    second = run(prepared, start(prepared, tmp_path / "two"), RunOptions(workers=1)).evidence
    assert first is not None
    assert second is not None
    assert first["digest"] == second["digest"]
    assert first["environment"]["written"] != second["environment"]["written"]


def test_seven_shards_with_one_killed_and_resumed_are_one_run(tmp_path: Path) -> None:
    code, _, err = finish(command(tmp_path / "home", str(MINI), "--out", str(tmp_path / "one")))
    assert code == 0, err
    home = tmp_path / "home"
    shards = [tmp_path / f"machine{k % 3}" / f"shard{k}" for k in range(1, 8)]
    for k, directory in enumerate(shards, 1):
        line = (str(MINI), "--shard", f"{k}/7", "--out", str(directory), "--workers", "1")
        if k == 2:
            child = command(home, *line, fault="held")
            wait_for_blocks(directory, 1)
            child.kill()
            home.with_name("gate").touch()  # for its own child, which has its output open still
            finish(child)
            with pytest.raises(EvidenceIncomplete, match="unfinished"):
                merge([directory], tmp_path / "early")
            code, _, err = finish(command(home, "--resume", str(directory)))
        else:
            code, _, err = finish(command(home, *line))
        assert code == 0, err
        assert not (directory / FILE_NAME).exists()
    report = merge(shards, tmp_path / "merged")
    one, _ = read_evidence(tmp_path / "one" / FILE_NAME)
    merged, _ = read_evidence(tmp_path / "merged" / FILE_NAME)
    assert merged["digest"] == one["digest"] == report.digest
    assert report.outcome is Outcome.PASSED
    assert not list(tmp_path.rglob(".tmp-*"))
    assert not list(tmp_path.rglob("*.lock"))
    checkpoints.check_seal(tmp_path / "merged")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_run_that_goes_on(tmp_path: Path, number: int, code: int) -> None:
    directory = tmp_path / "run"
    child = command(tmp_path / "home", str(MINI), "--out", str(directory), "--workers", "2", fault="held")
    wait_for_blocks(directory, 2)
    child.send_signal(number)
    (tmp_path / "gate").touch()
    got, out, err = finish(child)
    assert got == code, err
    assert out == ""
    assert err.startswith("error: interrupted: ")
    assert f"toktier certify --resume {directory}" in err
    done = len(checkpoints.read(directory).results)
    assert 0 < done < BLOCKS
    assert not (directory / checkpoints.COMPLETE).exists()
    got, _, err = finish(command(tmp_path / "home", "--resume", str(directory)))
    assert got == 0, err
    assert read_evidence(directory / FILE_NAME)[0]["digest"]
    lines = (directory / checkpoints.BLOCKS).read_bytes().splitlines()
    assert len(lines) == BLOCKS + 1
    assert json.loads(lines[done])["index"] in range(BLOCKS)


@pytest.mark.ci
def test_kills_at_any_moment_and_the_same_evidence(tmp_path: Path) -> None:
    rng = random.Random(5)
    directory = tmp_path / "run"
    line: tuple[str, ...] = (str(MINI), "--out", str(directory), "--workers", "2")
    for _ in range(15):
        child = command(tmp_path / "home", *line, fault="slow")
        time.sleep(0.4 + rng.random())
        child.kill()
        finish(child)
        if (directory / checkpoints.BLOCKS).exists():
            line = ("--resume", str(directory))
    code, _, err = finish(command(tmp_path / "home", *line))
    assert code == 0, err
    code, _, err = finish(command(tmp_path / "home", str(MINI), "--out", str(tmp_path / "one")))
    assert read_evidence(directory / FILE_NAME)[0]["digest"] == read_evidence(tmp_path / "one" / FILE_NAME)[0]["digest"]


def test_children_end_with_a_killed_parent(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    child = command(tmp_path / "home", str(MINI), "--out", str(directory), "--workers", "3", fault="held")
    wait_for_blocks(directory, 3)
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    assert len(children) == 3
    child.kill()
    (tmp_path / "gate").touch()
    finish(child)
    deadline = time.monotonic() + 300
    while any(os.path.exists(f"/proc/{pid}") and "Z" not in state(pid) for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def state(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_a_budget_too_small_is_incomplete_and_goes_on(tmp_path: Path) -> None:
    prepared = prepare(tmp_path / "home")
    checkpoint = start(prepared, tmp_path / "run")
    report = run(prepared, checkpoint, RunOptions(workers=1, time_budget=0.0))
    assert report.outcome is Outcome.INCOMPLETE
    assert report.out_of_time
    assert {reason.code for reason in report.reasons} == {Against.NOT_RUN}
    assert not (tmp_path / "run" / checkpoints.COMPLETE).exists()
    report = run(prepared, checkpoints.read(tmp_path / "run"), RunOptions(workers=1))
    assert report.outcome is Outcome.PASSED


def test_a_difference_fails_is_minimised_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_FAULT", "ids")
    monkeypatch.setattr("toktier.certify.failures.MORE_SECONDS", 3600.0)  # all of them are counted below
    report = one_run(tmp_path, max_failures=3)
    assert report.outcome is Outcome.FAILED
    assert [reason.code for reason in report.reasons] == [Against.MISMATCH]
    # Many texts differ, in several modes, and all come to one: it is told once, with how often.
    ((path, failure),) = report.failures
    validator("certify_failure").validate(failure)
    assert failure["text"] == [0xF6, 0xDF]
    assert failure["comparison"]["differs"] == "ids"
    assert json.loads(Path(path).read_bytes()) == failure
    mismatches = report.states[0].counts.mismatches
    assert failure["times"] == mismatches > 13
    assert f", {mismatches} times" in report.summary().decode()
    assert "U+00F6 U+00DF" in report.summary().decode()
    checkpoints.check_seal(tmp_path / "one")
    document, _ = read_evidence(tmp_path / "one" / FILE_NAME)
    assert document["outcome"] == "failed"
    validator("evidence").validate(document)
    assert len(document["failures"]) == len({one["sha256"] for one in document["failures"]}) == 20
    assert 20 < sum(one["times"] for one in document["failures"]) < mismatches
    assert "text" not in document["failures"][0]


def test_as_many_different_failures_are_kept_as_were_asked_for(tmp_path: Path) -> None:
    prepared = prepare(tmp_path / "home")
    values = [kept("value", subject=str(n), got="1", expected="2") for n in (1, 2, 1, 3, 2, 2, 4)]
    results = {n: BlockResult(n, Counts(), OTHER, [value]) for n, value in enumerate(values)}
    made = list(failure_documents(prepared.plan, results, prepared.subject, {}, 3))
    assert [(document["subject"], document["times"]) for _, document in made] == [("1", 2), ("2", 3), ("3", 1)]
    tally = Tally(prepared.subject, "words", 0)
    for _ in range(30):
        tally.check("number", "one", 1, 2)
        tally.check("another way", "one", 1, 2)
    tally.check("number", "two", 1, 2)
    assert [(f["subject"], f["times"], f["what"]) for f in tally.failures] == [
        ("one", 60, "number"),
        ("two", 1, "number"),
    ]
    assert tally.counts.mismatches == 61


def kept(what: str, **more: Any) -> dict[str, Any]:
    """A failure as a tally keeps it."""
    return {"suite": "words", "block": 0, "what": what, "times": 1, **more}


def test_a_fault_is_incomplete_and_another_run_mends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_FAULT", "die")
    report = one_run(tmp_path)
    assert report.outcome is Outcome.INCOMPLETE
    assert not report.out_of_time
    assert [reason.text for reason in report.reasons] == ["block 4: its process was ended by SIGKILL"]
    read_evidence(tmp_path / "one" / FILE_NAME)
    assert b"<error " in (tmp_path / "one" / JUNIT).read_bytes()
    monkeypatch.setenv("TINY_FAULT", "")
    prepared = prepare(tmp_path / "home")
    assert run(prepared, checkpoints.read(tmp_path / "one"), RunOptions(workers=1)).outcome is Outcome.PASSED


def test_routed_checks_are_no_agreement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_FAULT", "route")
    report = one_run(tmp_path)
    assert report.outcome is Outcome.INCOMPLETE
    assert [(reason.code, reason.suite) for reason in report.reasons] == [(Against.NOT_SERVED, "words")]
    assert report.states[0].counts.routed == report.states[0].counts.checks > 0
    assert report.states[0].counts.mismatches == 0


def test_nothing_is_no_pass(tmp_path: Path) -> None:
    for number, suites in enumerate(((), (Silent(),))):
        prepared = prepare(tmp_path / "home", suites)
        report = run(prepared, start(prepared, tmp_path / str(number)), RunOptions(workers=1))
        assert report.outcome is Outcome.INCOMPLETE
        assert [reason.code for reason in report.reasons] == [Against.NOTHING_PLANNED]
        read_evidence(tmp_path / str(number) / FILE_NAME)


# merge


def shards(tmp_path: Path, count: int, name: str = "s", **more: Any) -> list[Path]:
    paths = []
    for k in range(1, count + 1):
        prepared = prepare(tmp_path / "home", **more)
        paths.append(tmp_path / f"{name}{k}")
        run(prepared, start(prepared, paths[-1], Shard(k, count)), RunOptions(workers=1))
    return paths


def test_merge_refuses_gaps_overlaps_and_foreign_plans_by_name(tmp_path: Path) -> None:
    parts = shards(tmp_path, 3)
    with pytest.raises(EvidenceIncomplete, match=r"7 of 21 blocks are missing: 7 to 13 \(no directory was to run them"):
        merge([parts[0], parts[2]], tmp_path / "out")
    with pytest.raises(EvidenceInvalid, match="overlap: both were to run block 0") as overlap:
        merge([*parts, parts[0]], tmp_path / "out")
    assert str(parts[0]) in str(overlap.value)
    foreign = shards(tmp_path, 3, "f", seed=4)
    with pytest.raises(EvidenceInvalid, match="another plan") as refused:
        merge([parts[0], foreign[1], parts[2]], tmp_path / "out")
    assert str(foreign[1]) in str(refused.value)
    assert "seed" in str(refused.value)
    halves = shards(tmp_path, 2, "h")
    with pytest.raises(EvidenceInvalid, match="overlap"):
        merge([parts[0], halves[1], parts[2]], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_merge_refuses_another_build_an_edited_part_and_a_used_directory(tmp_path: Path) -> None:
    parts = shards(tmp_path, 2)
    prepared = prepare(tmp_path / "home")
    other = checkpoints.begin(tmp_path / "b", prepared.plan, Shard(2, 2), build(compiler="other"), {"artifact": ""})
    run(prepared, other, RunOptions(workers=1))
    with pytest.raises(EvidenceInvalid, match=r"another build .* compiler differs"):
        merge([parts[0], tmp_path / "b"], tmp_path / "out")
    with pytest.raises(EnvironmentFault, match="not empty"):
        merge(parts, tmp_path / "home")
    data = (parts[0] / SUMMARY).read_bytes()
    (parts[0] / SUMMARY).write_bytes(data + b"!")
    with pytest.raises(EvidenceInvalid, match="was changed"):
        merge(parts, tmp_path / "out")


OTHER = "0" * 64
FOREIGN: dict[str, Any] = {
    "engine": lambda document: document.update(engine=OTHER),
    "reference": lambda document: document["reference"].update(version="0.21.0"),
    "artifact.fingerprint": lambda document: document["artifact"].update(fingerprint=OTHER),
    "artifact.sha256": lambda document: document["artifact"].update(sha256=OTHER),
    "level": lambda document: document.update(level="standard"),
}


def of_another_plan(tmp_path: Path, name: str, change: Any, numbers: tuple[int, ...] = (1, 2)) -> list[Path]:
    """Whole shards of a plan that was changed and sealed again, as another installation would have left them."""
    paths = []
    for number in numbers:
        prepared = prepare(tmp_path / "home")
        document = copy.deepcopy(prepared.plan.document)
        change(document)
        content = {key: value for key, value in document.items() if key != "digest"}
        plan = Plan({**content, "digest": document_digest(TAG_CERTIFY_PLAN, content)})
        changed = dataclasses.replace(prepared, plan=plan)
        directory = tmp_path / f"{name}{number}"
        state = checkpoints.begin(directory, plan, Shard(number, 2), build(identity=plan.document["engine"]), TARGET)
        run(changed, state, RunOptions(workers=1))
        paths.append(directory)
    return paths


@pytest.mark.parametrize("differs", FOREIGN)
def test_merge_refuses_mixtures(tmp_path: Path, differs: str) -> None:
    parts = shards(tmp_path, 2)
    (other,) = of_another_plan(tmp_path, "x", FOREIGN[differs], (2,))
    with pytest.raises(EvidenceInvalid, match=rf"x2 is of another plan .*{re.escape(differs)}.* differs") as refused:
        merge([parts[0], other], tmp_path / "out")
    assert refused.value.exit_code == 5
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("differs", ["engine", "reference"])
def test_merge_refuses_shards_of_another_installation(tmp_path: Path, differs: str) -> None:
    parts = of_another_plan(tmp_path, "x", FOREIGN[differs])
    with pytest.raises(EvidenceInvalid, match=rf"of another installation: .*{differs} was ") as refused:
        merge(parts, tmp_path / "out")
    assert refused.value.exit_code == 5
    assert not (tmp_path / "out").exists()


def test_merge_refuses_a_module_that_was_built_from_other_sources(tmp_path: Path) -> None:
    prepared = prepare(tmp_path / "home")
    state = checkpoints.begin(tmp_path / "x", prepared.plan, Shard(), build(identity=OTHER), TARGET)
    run(prepared, state, RunOptions(workers=1))
    with pytest.raises(EvidenceInvalid, match=r"of another installation: build.identity was 0000"):
        merge([tmp_path / "x"], tmp_path / "out")


def test_failures_of_shards_are_those_of_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_FAULT", "ids")
    one = one_run(tmp_path)
    report = merge(shards(tmp_path, 4), tmp_path / "out")
    assert report.digest == one.digest
    assert report.outcome is Outcome.FAILED
    assert [d["text"] for _, d in report.failures] == [d["text"] for _, d in one.failures]
