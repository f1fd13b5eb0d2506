"""A report as text: one line a check, worst last, why and what mends it under those that are not ok.

Made from the document alone, so that people read what the JSON says. ASCII, so that any terminal and log shows it;
colour is put around the tag and nothing else. Not here: when to colour.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from toktier.diagnosis.model import Status
from toktier.labels import escaped

NARROWEST, WIDEST = 30, 120
INDENT = 7
_COLOURS = {Status.OK: "32", Status.WARN: "33", Status.UNKNOWN: "33", Status.FAIL: "31"}


def report_text(document: Mapping[str, Any], *, width: int | None, colour: bool) -> str:
    """`width` in columns; None: lines are not folded."""
    width = None if width is None else min(max(width, NARROWEST), WIDEST)
    rows = sorted(document["checks"], key=lambda row: Status(row["status"]).severity)
    lines = [line for row in rows for line in _row(row, width, colour)]
    if document["family"] is not None:
        lines += ["", *_family(document["family"], width)]
    counts = ", ".join(f"{count} {name}" for name, count in document["summary"].items() if count)
    lines += ["", *_folded(f"toktier {document['toktier']['version']}: {document['status']} ({counts})", width)]
    return "\n".join(lines) + "\n"


def _row(row: Mapping[str, Any], width: int | None, colour: bool) -> Iterator[str]:
    status = Status(row["status"])
    tag = f"[{status.value.upper()}]"
    first, *rest = _folded(f"{tag} {row['id']}: {row['summary']}", width)
    if colour and status in _COLOURS:
        first = first.replace(tag, f"\x1b[{_COLOURS[status]}m{tag}\x1b[0m", 1)
    yield first
    yield from rest
    if status in (Status.OK, Status.SKIP):
        return
    for reason in row["reasons"]:
        yield from _folded(f"{reason['code']}: {_seen(reason)}", width, INDENT)
    remedy = row["remedy"]
    if remedy is not None:
        yield from _folded(f"mend: {remedy['text']}", width, INDENT)
        if remedy["command"] is not None:
            yield f"{' ' * INDENT}$ {escaped(remedy['command'])}"  # not folded: it is to be pasted


def _seen(reason: Mapping[str, Any]) -> str:
    measured = "nothing" if reason["measured"] is None else reason["measured"]
    return f"{measured}" if reason["expected"] is None else f"{measured}, expected {reason['expected']}"


def _family(block: Mapping[str, Any], width: int | None) -> Iterator[str]:
    yield from _folded(f"{block['family']}: {block['artifact_sha256'] or 'no artifact'}", width)
    if block["effective_backend"] is not None or block["gates"]:
        serves, below = block["effective_backend"], block["effective_backend_below_crossover"]
        yield from _folded(f"serves: {serves or 'nothing'}; short texts: {below or 'nothing'}", width, 2)
        yield from _folded(f"fast_cpu {block['fast_cpu_status']}, gpu {block['gpu_status']}", width, 2)
    kernels = block["gpu_kernels"]
    if kernels is not None:
        told = "can follow it" if kernels["suits"] else f"cannot follow it: {kernels['reason']} ({kernels['premise']})"
        yield from _folded(f"kernels of the GPU {told}", width, 2)
    for gate in block["gates"]:
        state = "open  " if gate["open"] else "closed"
        reason = "" if gate["reason"] is None else f" ({gate['reason']})"
        yield from _folded(f"{state} {gate['backend']} {gate['gate']}: {gate['summary']}{reason}", width, 2)


def _folded(text: str, width: int | None, indent: int = 0) -> list[str]:
    text = escaped(text)
    if width is None:
        return [" " * indent + text]
    return textwrap.wrap(
        text, width, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2 if indent else INDENT)
    ) or [""]
