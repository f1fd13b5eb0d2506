"""What the verbs of `toktier certify` print: tables for people, documents for programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from toktier.certify.evidence import FILE_NAME
from toktier.certify.summary import failure_line
from toktier.certify.tally import Counts
from toktier.labels import shown_path
from toktier_cli.table import columns

if TYPE_CHECKING:
    from toktier.certify.outcome import SuiteState
    from toktier.certify.runner import Report

FAILURES_SHOWN = 5


def document(report: Report, stored: Path | None = None) -> dict[str, Any]:
    """The `certify` document, without what every document has. `stored`: where loads find the evidence."""
    content = report.plan.document
    return {
        "directory": str(report.directory),
        "plan": report.plan.digest,
        **{key: content[key] for key in ("artifact", "backend", "engine", "reference", "level", "seed")},
        "shard": {"number": report.shard.number, "count": report.shard.count},
        "outcome": report.outcome.value,
        "reasons": [reason.to_dict() for reason in report.reasons],
        "suites": [
            {"name": s.name, "blocks": s.planned, "blocks_done": s.done, "why": s.why, "counts": s.counts.to_dict()}
            for s in report.states
        ],
        "totals": totals(report.states).to_dict(),
        "failures": [
            {"path": path, "suite": d["suite"], "block": d["block"], "what": d["what"]} for path, d in report.failures
        ],
        "evidence": None
        if report.evidence is None
        else {"path": str(report.directory / FILE_NAME), "digest": report.digest},
        "out_of_time": report.out_of_time,
        "stored": None if stored is None else str(stored),
    }


def text(report: Report, stored: Path | None = None) -> str:
    """For people: the table, why it is no pass, the first differences, and where the rest lies."""
    content = report.plan.document
    reference = content["reference"]
    part = f", shard {report.shard}" if report.shard.count > 1 else ""
    head = (
        f"{content['artifact']['name']} on {content['backend']}: {report.outcome.value}"
        f" ({content['level']}{part}, against {reference['package']} {reference['version']})\n"
    )
    rows = [_row(s.name, f"{s.done} of {s.planned}", s.counts, s.why or "") for s in report.states]
    done, planned = sum(s.done for s in report.states), sum(s.planned for s in report.states)
    rows.append(_row("total", f"{done} of {planned}", totals(report.states), ""))
    header = ("SUITE", "BLOCKS", "DOCUMENTS", "BYTES", "IDS", "CHECKS", "MISMATCHES", "ROUTED", "")
    lines = [head + columns(header, rows, right=range(1, 8)).rstrip("\n")]
    lines += [f"not passed: {r.suite + ': ' if r.suite else ''}{r.text}" for r in report.reasons]
    lines += [f"differs: {failure_line(path, d)}" for path, d in report.failures[:FAILURES_SHOWN]]
    if len(report.failures) > FAILURES_SHOWN:
        lines.append(f"and {len(report.failures) - FAILURES_SHOWN} more in {shown_path(report.directory)}/failures")
    if report.evidence is None:
        lines.append(f"shard: {shown_path(report.directory)}; evidence comes of toktier certify merge DIR...")
    else:
        lines.append(f"evidence: {shown_path(report.directory / FILE_NAME)}, digest {report.digest}")
    if stored is not None:
        lines.append("locally certified: the default policy serves it natively on this host from now on")
        lines.append(f"undo: toktier certify forget {content['artifact']['sha256']}")
    return "\n".join(lines) + "\n"


def totals(states: list[SuiteState]) -> Counts:
    """Counts of all suites."""
    total = Counts()
    for state in states:
        total.add(state.counts)
    return total


def _row(name: str, blocks: str, counts: Counts, why: str) -> list[str]:
    numbers = (counts.documents, counts.utf8_bytes, counts.ids, counts.checks, counts.mismatches, counts.routed)
    return [name, blocks, *(f"{n:,}" for n in numbers), why]
