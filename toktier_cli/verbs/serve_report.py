"""`toktier serve report`: how outputs with reuse of a slot differ from those without (docs/divergence.md).

Not here: the classes (`toktier.router.divergence`), the measure that sees meaning (`toktier.router.minilm`).
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import typer

from toktier.errors import ExitCode, UsageError
from toktier.labels import quoted
from toktier.router.divergence import (
    DIVERGENCE_MEANINGS,
    REASON_MEANINGS,
    Divergence,
    Measure,
    Reason,
    Tally,
    TokenOverlap,
    Verdict,
    classify,
)
from toktier_cli.inputs import open_stream
from toktier_cli.invocation import Invocation, Result
from toktier_cli.options import one_of, path_of
from toktier_cli.table import columns


class MeasureName(StrEnum):
    """What `--measure` takes."""

    OVERLAP = "overlap"
    MINILM = "minilm"


def report(
    ctx: typer.Context,
    pairs: Annotated[
        str | None,
        typer.Argument(
            metavar="[PAIRS.jsonl|-]",
            help='Lines of {"cached": "...", "uncached": "..."}; - is stdin.',
            show_default=False,
        ),
    ] = None,
    records: Annotated[
        str | None,
        typer.Option("--records", metavar="PATH", help="The records of a router that ran with --record-outputs."),
    ] = None,
    measure: Annotated[str, typer.Option("--measure", metavar="MEASURE", help=one_of(*MeasureName))] = "overlap",
    tokenizer_json: Annotated[
        str | None,
        typer.Option(
            "--minilm-tokenizer", metavar="PATH", help="The tokenizer.json of all-MiniLM-L6-v2, if not installed."
        ),
    ] = None,
    per_pair: Annotated[bool, typer.Option("--per-pair", help="One line for each pair too.")] = False,
    fail: Annotated[
        bool, typer.Option("--fail-on-substantive", help="Exit code 1 where a pair differs in substance.")
    ] = False,
) -> Result:
    """Sort pairs of outputs, with and without reuse, into classes.

    A pair is identical, differs in whitespace only, in words only (cosmetic), or in substance. The percentage is of the
    pairs that differ. What the measure cannot see is said with the result. No text is shown.
    """
    if (pairs is None) == (records is None):
        raise UsageError("expected one of PAIRS.jsonl and --records PATH", remedy="toktier serve report --help")
    invocation: Invocation = ctx.obj
    chosen = _measure(measure, tokenizer_json)
    path = records if records is not None else pairs
    assert path is not None
    tally, rows = Tally(), _Rows()
    for place, verdict in _verdicts(path, records is not None, chosen):
        tally.add(verdict)
        if per_pair:
            rows.add(place, verdict)
    if not tally.pairs:
        invocation.note("note: no prompt has an output with reuse and one without")
    substantive = tally.classes[Divergence.SUBSTANTIVE]
    return Result(
        "serve_report",
        lambda: _document(path, records is not None, chosen, tally, rows if per_pair else None),
        lambda: _text(chosen, tally, rows if per_pair else None, "position" if records is not None else "line"),
        ExitCode.NO if fail and substantive else ExitCode.DONE,
    )


def _measure(name: str, tokenizer_json: str | None) -> Measure:
    if name not in list(MeasureName):
        raise UsageError(
            f"--measure is {quoted(name)}: expected {' or '.join(MeasureName)}",
            details={"measure": name},
            remedy="toktier serve report --help",
        )
    if name == MeasureName.MINILM:
        from toktier.router.minilm import MiniLm

        return MiniLm(tokenizer=None if tokenizer_json is None else path_of(tokenizer_json, "--minilm-tokenizer"))
    if tokenizer_json is not None:
        raise UsageError("--minilm-tokenizer goes with --measure minilm", remedy="toktier serve report --help")
    return TokenOverlap()


def _verdicts(path: str, records: bool, measure: Measure) -> Iterator[tuple[int, Verdict]]:
    from toktier.router.output_pairs import pairs_of_lines, pairs_of_records

    with contextlib.ExitStack() as stack:
        if records:
            found = pairs_of_records(path_of(path, "--records"))
        else:
            path_of(path, "PAIRS.jsonl")
            stream = stack.enter_context(open_stream(path))
            found = pairs_of_lines(stream, "stdin" if path == "-" else path)
        for pair in found:
            yield pair.place, classify(pair.cached, pair.uncached, measure)


_DIVERGENCES, _REASONS = tuple(Divergence), tuple(Reason)


class _Rows:
    """Fourteen bytes for each pair, whatever their number. A likeness of -2 stands for none."""

    def __init__(self) -> None:
        self._places = array("q")
        self._classes, self._reasons = bytearray(), bytearray()
        self._likenesses = array("f")

    def add(self, place: int, verdict: Verdict) -> None:
        self._places.append(place)
        self._classes.append(_DIVERGENCES.index(verdict.divergence))
        self._reasons.append(_REASONS.index(verdict.reason))
        self._likenesses.append(-2.0 if verdict.likeness is None else verdict.likeness)

    def __iter__(self) -> Iterator[tuple[int, Divergence, Reason, float | None]]:
        for place, divergence, reason, likeness in zip(
            self._places, self._classes, self._reasons, self._likenesses, strict=True
        ):
            yield place, _DIVERGENCES[divergence], _REASONS[reason], None if likeness < -1.5 else round(likeness, 4)


def _document(path: str, records: bool, measure: Measure, tally: Tally, rows: _Rows | None) -> dict[str, Any]:
    percent = tally.substantive_percent
    document: dict[str, Any] = {
        "source": {"kind": "records" if records else "pairs", "path": path},
        "measure": {"name": measure.name, "threshold": measure.threshold, "blind_to": measure.blind_to},
        "pairs": tally.pairs,
        "classes": {name.value: count for name, count in tally.classes.items()},
        "divergent": tally.divergent,
        "substantive_percent": None if percent is None else round(percent, 2),
        "substantive_reasons": {name.value: count for name, count in tally.reasons.items() if count},
    }
    if rows is not None:
        document["per_pair"] = [
            {"place": place, "class": divergence.value, "reason": reason.value, "likeness": likeness}
            for place, divergence, reason, likeness in rows
        ]
    return document


def _text(measure: Measure, tally: Tally, rows: _Rows | None, unit: str) -> Iterator[bytes]:
    if rows is not None:
        for place, divergence, reason, likeness in rows:
            by = "" if likeness is None else f" {likeness:.2f}"
            yield f"{unit} {place}: {divergence.value} ({reason.value}{by})\n".encode()
        yield b"\n"
    counts = [(name.value, f"{count:,}", DIVERGENCE_MEANINGS[name]) for name, count in tally.classes.items()]
    yield columns(("CLASS", "PAIRS", "MEANING"), [*counts, ("all", f"{tally.pairs:,}", "")], right=(1,)).encode()
    found = [(name.value, f"{count:,}", REASON_MEANINGS[name]) for name, count in tally.reasons.items() if count]
    if found:
        yield b"\n" + columns(("SUBSTANTIVE BY", "PAIRS", "MEANING"), found, right=(1,)).encode()
    substantive, percent = tally.classes[Divergence.SUBSTANTIVE], tally.substantive_percent
    said = "no pair diverges" if percent is None else f"{percent:.1f} % of {tally.divergent:,} divergent pairs"
    yield f"\nsubstantive: {'' if percent is None else f'{substantive:,}, '}{said}\n".encode()
    yield f"measure: {measure.name}, cosmetic from {measure.threshold:g}; it is blind to {measure.blind_to}\n".encode()
