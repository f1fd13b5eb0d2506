"""A run as Markdown, for people: outcome first, one row a suite, then what differed and how to see it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toktier.certify.failures import repro
from toktier.certify.outcome import OUTCOME_MEANINGS, Outcome, Reason, SuiteState
from toktier.certify.plan import Plan, Shard
from toktier.certify.tally import Counts
from toktier.labels import shown

MAX_BYTES = 900 << 10  # CI systems drop a summary of more than 1 MiB as a whole
CODE_POINTS_SHOWN = 40
FACTS_SHOWN = 40


def summary(
    plan: Plan,
    outcome: Outcome,
    states: Sequence[SuiteState],
    reasons: Sequence[Reason],
    failures: Sequence[tuple[str, dict[str, Any]]],
    shard: Shard | None = None,
    digest: str | None = None,
) -> bytes:
    """The page, at most `MAX_BYTES`. `digest`: of the evidence, where there is one."""
    content = plan.document
    artifact, reference = content["artifact"], content["reference"]
    totals = Counts()
    for state in states:
        totals.add(state.counts)
    part = "" if shard is None or shard.count == 1 else f", shard {shard}"
    lines = [
        f"## {_cell(artifact['name'])} on {content['backend']}: {outcome.value}{part}",
        "",
        f"{OUTCOME_MEANINGS[outcome][0].upper()}{OUTCOME_MEANINGS[outcome][1:]}."
        f" Level {content['level']}, seed {content['seed']}, against {reference['package']} {reference['version']}.",
        "",
        "| suite | blocks | documents | UTF-8 bytes | ids | checks | mismatches | routed | |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for state in states:
        lines.append(_row(state.name, f"{state.done} of {state.planned}", state.counts, state.why or ""))
    done, planned = sum(s.done for s in states), sum(s.planned for s in states)
    lines += [_row("total", f"{done} of {planned}", totals, ""), ""]
    if reasons:
        lines += ["### Why not passed", ""]
        lines += [f"- {_cell(r.suite) + ': ' if r.suite else ''}{_cell(r.text)}" for r in reasons] + [""]
    if failures:
        lines += ["### What differed", ""]
        lines += [f"- {_cell(failure_line(path, document))}" for path, document in failures] + [""]
    lines += ["### Coverage", ""]
    for suite in plan.suites:
        facts = [f"{key} {_fact(value)}" for key, value in list(suite.facts.items())[:FACTS_SHOWN]]
        if facts:
            lines.append(f"- {_cell(suite.name)}: {_cell(', '.join(facts))}")
    lines += [
        "",
        f"Artifact SHA-256 `{artifact['sha256']}`, fingerprint `{artifact['fingerprint']}`, "
        f"engine `{content['engine']}`, plan `{plan.digest}`" + (f", evidence `{digest}`" if digest else "") + ".",
        "",
    ]
    return _bounded(lines)


def failure_line(path: str, document: dict[str, Any]) -> str:
    """One failure for people: what, where, the code points, the first difference, and the line that repeats it."""
    again = f"`{repro(path)}`"
    where = f"{document['suite']} block {document['block']}: {document['what']}"
    where += f", {document['times']:,} times" if document["times"] > 1 else ""
    if "script" in document:
        return f"{where} after {_script_line(document)}; {again}"
    if "text" not in document:
        return f"{where} of {document['subject']}: {document['got']} instead of {document['expected']}; {again}"
    points = [f"U+{point:04X}" for point in document["text"][:CODE_POINTS_SHOWN]]
    more = f" and {len(document['text']) - len(points):,} more" if len(document["text"]) > len(points) else ""
    c = document["comparison"]
    row = "offsets" if c["differs"] == "offsets" else "ids"
    specials = (
        " with special tokens" if document["add_special_tokens"] else " in plain mode" if document["plain"] else ""
    )
    if c["differs"] is None:
        return f"{where}{specials} of {' '.join(points)}{more}: not seen again; {again}"
    return (
        f"{where}{specials} of {' '.join(points)}{more}: first difference at {row[:-1]} {c['first_difference']}, "
        f"from {c['from']} on {c['got_' + row]} instead of {c['expected_' + row]}; {again}"
    )


def _script_line(document: dict[str, Any]) -> str:
    """The edits of a script and how the ids differ behind them."""
    edits = [
        f"{operation}{f' from {start}' if operation == 'replace' else ''} "
        + (" ".join(f"U+{point:04X}" for point in points[:CODE_POINTS_SHOWN]) or "nothing")
        + (f" and {len(points) - CODE_POINTS_SHOWN:,} more" if len(points) > CODE_POINTS_SHOWN else "")
        for operation, start, points in document["script"]
    ]
    c = document["comparison"]
    if c["differs"] is None:
        return f"{', '.join(edits)}: not seen again"
    if c["error"] is not None:
        return f"{', '.join(edits)}: {c['error']}"
    row = c["differs"]
    return f"{', '.join(edits)}: {row} {c['got_' + row]} instead of {c['expected_' + row]}, from id {c['from']} on"


def _row(name: str, blocks: str, counts: Counts, why: str) -> str:
    numbers = (counts.documents, counts.utf8_bytes, counts.ids, counts.checks, counts.mismatches, counts.routed)
    return f"| {_cell(name)} | {blocks} | " + " | ".join(f"{n:,}" for n in numbers) + f" | {_cell(why)} |"


def _fact(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else shown(str(value), 200)


def _cell(text: str) -> str:
    """Nothing that Markdown or HTML would take for its own."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def _bounded(lines: list[str]) -> bytes:
    kept, size = [], 0
    for line in lines:
        size += len(line.encode("utf-8", "backslashreplace")) + 1
        if size > MAX_BYTES - 100:
            kept.append("\n(the rest is in the run directory)")
            break
        kept.append(line)
    return ("\n".join(kept) + "\n").encode("utf-8", "backslashreplace")
