"""`toktier bench`: this machine's speed beside the reference and, with --peers, every other engine that is installed.

The short form of benchmarks/: one process on one core, the engines in turn, a small text of its own or yours. Each
timed result is compared with the reference's once the clock has stopped. Not here: first passes in fresh processes,
corpora, threads, memory (docs/benchmarks.md).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toktier.errors import ExitCode, UsageError
from toktier_cli import options
from toktier_cli.inputs import read_file, text_of_file
from toktier_cli.invocation import Invocation, Result
from toktier_cli.progress import Progress
from toktier_cli.table import columns

if TYPE_CHECKING:
    from toktier import Tokenizer

_PASS_BYTES = 1_000_000  # of text in a timed pass: some milliseconds of a fast engine
_CALLS = 1_000


@dataclass(slots=True)
class _Case:
    """A text that is timed: in one call, or `calls` times in a loop."""

    name: str
    texts: list[str]
    calls: bool
    expected: list[bytes] = field(default_factory=list)

    @property
    def utf8_bytes(self) -> int:
        return sum(len(text.encode()) for text in self.texts)


@dataclass(slots=True)
class _Row:
    """One engine: `times` are nanoseconds of each timed section, by case."""

    name: str
    version: str | None
    encode: Callable[[str], Any] | None = None
    ids_of: Callable[[Any], bytes] = bytes
    status: str = "measured"
    reason: str | None = None
    load_ns: int | None = None
    times: dict[str, list[int]] = field(default_factory=dict)


@partial(options.encodes, family="toktier_mini")
def bench(
    ctx: typer.Context,
    load: options.Load,
    input_: Annotated[
        str | None, typer.Option("--input", "-i", metavar="PATH", help="Your text; without it, a small one is used.")
    ] = None,
    peers: Annotated[bool, typer.Option("--peers", help="Every other engine that is installed, too.")] = False,
    rounds: Annotated[int, typer.Option("--rounds", metavar="N", help="Timed passes of each engine.")] = 5,
) -> Result:
    """Speed of encoding on one core of this machine, beside the reference.

    Without --family or --file: a small tokenizer that the package brings, which says little of yours. Megabytes are
    10^6 bytes of UTF-8. The exit code is 1 when an engine gives other IDs than the reference.
    """
    invocation: Invocation = ctx.obj
    if not 1 <= rounds <= 1000:
        raise UsageError(f"--rounds is {rounds}: expected 1 to 1000", remedy="toktier bench --help")
    text = None if input_ is None else _text_of(input_)
    start = time.perf_counter_ns()
    tok = load()
    loaded = time.perf_counter_ns() - start
    path = Path(tok.explain()["model_resolution"]["path"])
    cases = _cases(text)
    with _one_core():
        rows = _engines(tok, path, peers)
        rows[0].load_ns = loaded
        _measure(invocation, rows, cases, rounds)
    wrong = any(row.status == "wrong" for row in rows)
    return Result(
        "bench",
        lambda: _document(tok, rows, cases, rounds),
        lambda: _table(rows, cases),
        ExitCode.NO if wrong else ExitCode.DONE,
    )


def _text_of(path: str) -> str:
    from toktier._native import text_of

    with text_of_file(path):
        text = text_of(read_file(path))
    if not text:
        raise UsageError("the text of --input is empty", remedy="toktier bench --help")
    return text


def _cases(text: str | None) -> list[_Case]:
    from toktier_cli.bench import texts

    whole = texts.ALL if text is None else text
    repeated = max(1, _PASS_BYTES // len(whole.encode()))
    return [
        _Case("hello world", [texts.SHORT], True),
        _Case("256 ASCII", [texts.ASCII_256], True),
        _Case("256 other", [texts.OTHER_256], True),
        _Case("text", [whole] * repeated, False),
    ]


@contextmanager
def _one_core() -> Iterator[None]:
    """On the last processor that this process may use, until the end."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _engines(tok: Tokenizer, path: Path, peers: bool) -> list[_Row]:
    """Ours as the options have it, the reference, and the peers in their order."""
    from toktier.version import VERSION
    from toktier_cli.bench import engines

    served = tok.encode("a").backend
    rows = [_Row(f"toktier ({served})", VERSION, tok.encode, lambda result: bytes(memoryview(result)))]
    for kind in engines.ENGINES:
        if kind is engines.Toktier or (kind.name != engines.REFERENCE and not peers):
            continue
        row = _Row(kind.name, engines.version(kind.name))
        rows.append(row)
        if row.version is None:
            row.status = "absent"
            continue
        start = time.perf_counter_ns()
        try:
            engine = kind(path)
        except engines.Refused as reason:
            row.status, row.reason = "refused", str(reason)
            continue
        row.load_ns = time.perf_counter_ns() - start
        row.encode, row.ids_of = engine.encode, engine.ids_of
    return rows


def _measure(invocation: Invocation, rows: list[_Row], cases: list[_Case], rounds: int) -> None:
    from toktier_cli.bench import timing
    from toktier_cli.bench.engines import REFERENCE

    taking_part = [row for row in rows if row.encode is not None]
    reference = next(row for row in taking_part if row.name == REFERENCE)
    assert reference.encode is not None
    timing.settle_heap()
    progress = Progress(invocation, len(cases) * rounds, "rounds", lambda: "")
    for case in cases:
        distinct = {text: reference.ids_of(reference.encode(text)) for text in set(case.texts)}
        case.expected = [distinct[text] for text in case.texts]
        for number in range(rounds):
            shift = number % len(taking_part)
            for row in taking_part[shift:] + taking_part[:shift]:
                # The reference takes a thousand times as long for the same figure: one section is enough.
                if row is not reference or number == 0:
                    _section(row, case)
            progress.advance()


def _section(row: _Row, case: _Case) -> None:
    """One timed section of one engine, behind a pass that warms its caches."""
    from toktier_cli.bench import timing

    assert row.encode is not None
    for text in timing.fresh(case.texts[:1]):
        row.encode(text)
    if case.calls:
        took, results = timing.timed_calls(row.encode, timing.fresh(case.texts * _CALLS))
        expected = case.expected * len(results)
    else:
        took, results = timing.timed_pass(row.encode, timing.fresh(case.texts))
        expected = case.expected
    row.times.setdefault(case.name, []).append(took.cpu_ns)
    differing = sum(row.ids_of(result) != wanted for result, wanted in zip(results, expected, strict=True))
    if differing:
        row.status = "wrong"
        row.reason = f"{case.name}: {differing} of {len(results)} results differ from the reference's"


def _rate(row: _Row, case: _Case, of: Callable[[list[int]], float] = min) -> float | None:
    """Nanoseconds a call, or megabytes a second; None without a figure that counts."""
    times = row.times.get(case.name)
    if not times or row.status != "measured":
        return None
    spent = max(1.0, of(times))
    return spent / _CALLS if case.calls else case.utf8_bytes * 1000 / spent


def _processor() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _document(tok: Tokenizer, rows: list[_Row], cases: list[_Case], rounds: int) -> dict[str, Any]:
    return {
        "artifact_sha256": tok.artifact_sha256,
        "processor": _processor(),
        "rounds": rounds,
        "texts": [
            {"name": case.name, "bytes": case.utf8_bytes, "calls": _CALLS if case.calls else 0} for case in cases
        ],
        "engines": [
            {
                "name": row.name,
                "version": row.version,
                "status": row.status,
                "reason": row.reason,
                "load_ms": None if row.load_ns is None else round(row.load_ns / 1e6, 3),
                "figures": [
                    {
                        "text": case.name,
                        "unit": "ns" if case.calls else "MB/s",
                        "best": None if (best := _rate(row, case)) is None else round(best, 2),
                        "median": None if (mid := _rate(row, case, statistics.median)) is None else round(mid, 2),
                    }
                    for case in cases
                ],
            }
            for row in rows
        ],
    }


def _table(rows: list[_Row], cases: list[_Case]) -> str:
    ours = rows[0]
    header = ["ENGINE", "VERSION", *(case.name.upper() for case in cases), "RATIO"]
    body = []
    for row in rows:
        if row.status == "measured":
            cells = [_shown(_rate(row, case), case) for case in cases]
        else:
            cells = [row.status.upper() if row.status == "wrong" else row.status, *[""] * (len(cases) - 1)]
        mine, theirs = _rate(ours, cases[-1]), _rate(row, cases[-1])
        ratio = "" if row is ours or mine is None or theirs is None else f"x{mine / theirs:.2f}"
        body.append([row.name, row.version or "", *cells, ratio])
    text = columns(header, body, right=range(2, len(header)))
    said = [f"{row.name}: {row.reason}\n" for row in rows if row.reason]
    return (
        text
        + "\nratio: toktier to that engine, on the last text; best of all rounds, by processor time\n"
        + "".join(said)
    )


def _shown(rate: float | None, case: _Case) -> str:
    if rate is None:
        return ""
    return f"{rate:,.0f} ns" if case.calls else f"{rate:,.1f} MB/s"
