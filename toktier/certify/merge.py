"""Shards put together: the evidence that one run of the same plan would have made, digest and all.

Refused, by name: parts of another plan or of another build, parts of another installation than this one, parts that
overlap, parts that did not end, and gaps.
Nothing is run again here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toktier.certify import checkpoint as checkpoints
from toktier.certify.checkpoint import FAILURES, BlockResult, Checkpoint
from toktier.certify.evidence import empty_corpora, environment_of, make_evidence, states_of
from toktier.certify.failures import distinct, read_failure
from toktier.certify.outcome import judge
from toktier.certify.plan import Shard, differences, installed_engine, installed_reference
from toktier.certify.runner import MAX_FAILURES, Report, write_failures, write_reports
from toktier.certify.workers import BlockFault
from toktier.errors import EvidenceIncomplete, EvidenceInvalid, UsageError
from toktier.labels import shown, shown_path, typed

GAPS_SHOWN = 8


def merge(directories: Sequence[Path], out: Path, max_failures: int = MAX_FAILURES) -> Report:
    """Raises EvidenceInvalid for what is foreign, to the other parts or to this installation, edited or twice there,
    EvidenceIncomplete for gaps. `out` must be a new or empty directory."""
    if not directories:
        raise UsageError("no directory to merge: give those of all shards", remedy="toktier certify merge --help")
    parts = [checkpoints.read(directory) for directory in directories]
    first = parts[0]
    for part in parts[1:]:
        _require_same(first, part)
    _require_own(first)
    owners: dict[int, Path] = {}
    results: dict[int, BlockResult] = {}
    for part in parts:
        twice = next((index for index in part.planned if index in owners), None)
        if twice is not None:
            raise EvidenceInvalid(
                f"{shown_path(part.directory)} and {shown_path(owners[twice])} overlap: both were to run block {twice}",
                details={"block": twice, "directories": [str(owners[twice]), str(part.directory)]},
                remedy="give every shard once, all of one K/N",
            )
        owners |= dict.fromkeys(part.planned, part.directory)
        results |= part.results
    _require_whole(first.plan.blocks, owners, results)
    for part in parts:
        checkpoints.check_seal(part.directory)
    checkpoints.require_unused(out)
    return _written(parts, results, out, max_failures)


def _written(parts: Sequence[Checkpoint], results: dict[int, BlockResult], out: Path, max_failures: int) -> Report:
    first, no_faults = parts[0], list[BlockFault]()
    evidence = make_evidence(first.plan, first.build, results, no_faults, environment_of(0, 0, len(parts)))
    states = states_of(first.plan, results)
    outcome, reasons = judge(states, empty_corpora(first.plan))
    # No host: who resumes what was put together has run nothing of it, so it is not believed.
    target = {key: value for key, value in first.target.items() if key != "host"}
    state = checkpoints.begin(out, first.plan, Shard(), first.build, target)
    with checkpoints.Writer(state) as writer:
        for index in sorted(results):
            writer.append(results[index])
    documents: list[tuple[str, dict[str, Any]]] = []
    for part in parts:
        files = (part.directory / FAILURES).glob("*.json")
        documents += [(path.name, read_failure(path)) for path in files]
    for name, document in documents:
        if document["plan"] != first.plan.digest:
            raise EvidenceInvalid(
                f"{shown(name)} among the failures is of another plan",
                details={"file": name},
                remedy="bring the whole directory again from where it was made",
            )
    order = [suite.name for suite in first.plan.suites]
    documents.sort(key=lambda d: (order.index(d[1]["suite"]), d[1]["block"], d[0]))
    failures = write_failures(out, distinct(documents)[:max_failures])
    report = Report(out, first.plan, Shard(), outcome, states, reasons, failures, evidence)
    write_reports(report)
    checkpoints.seal(out)
    return report


def _require_same(first: Checkpoint, part: Checkpoint) -> None:
    plans = differences(first.plan.document, part.plan.document)
    builds = differences(first.build, part.build)
    if plans or builds:
        what = "plan" if plans else "build"
        where = ", ".join(entry["path"] for entry in (plans or builds)[:GAPS_SHOWN])
        raise EvidenceInvalid(
            f"{shown_path(part.directory)} is of another {what} than {shown_path(first.directory)}: {where} differs",
            details={"directory": str(part.directory), "differs": plans or builds},
            remedy="merge the shards of one plan, made by one build",
        )


def _require_own(part: Checkpoint) -> None:
    """Evidence is what this toktier says of itself: it puts its name to no result of another engine or reference, and
    to none of a native module that was built from other sources than the plan names."""
    plan = part.plan.document
    said = {
        "engine": plan["engine"],
        "reference": plan["reference"]["version"],
        "build.identity": part.build.get("identity"),
    }
    engine = installed_engine()
    installed = {"engine": engine, "reference": installed_reference(), "build.identity": engine}
    foreign = differences(said, installed)
    if foreign:
        raise EvidenceInvalid(
            f"{shown_path(part.directory)} is of another installation: "
            + "; ".join(f"{f['path']} was {shown(str(f['a']))}, installed is {f['b']}" for f in foreign),
            details={"directory": str(part.directory), "differs": foreign},
            remedy="merge with the toktier that ran the shards, beside the reference that it compared with",
        )


def _require_whole(total: int, owners: dict[int, Path], results: dict[int, BlockResult]) -> None:
    missing = [index for index in range(total) if index not in results]
    if not missing:
        return
    planned = sorted({str(owners[index]) for index in missing if index in owners})
    where = f"unfinished: {', '.join(map(shown_path, planned))}" if planned else "no directory was to run them"
    ranges = _ranges(missing)
    shown = ", ".join(f"{a} to {b}" if a != b else f"{a}" for a, b in ranges[:GAPS_SHOWN])
    raise EvidenceIncomplete(
        f"{len(missing):,} of {total:,} blocks are missing: {shown}"
        f"{', ...' if len(ranges) > GAPS_SHOWN else ''} ({where})",
        details={"missing": [list(r) for r in ranges[:1000]], "unfinished": planned, "blocks": total},
        remedy=f"toktier certify --resume {typed(planned[0])}"
        if planned
        else "run the missing shards and merge all of them",
    )


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
