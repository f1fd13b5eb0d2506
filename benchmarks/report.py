#!/usr/bin/env python3
"""Tables in docs/benchmarks.md and the figure docs/benchmarks.svg, from results.json and sessions.json; the same input,
the same bytes.

A table stands between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`; everything else of the page is written by hand.
`--check` ends with 1 where the page is not what would be written, or the figure was drawn from other results. Drawing
needs the extra `bench`; tables need nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import session_tables
import session_targets
from engines import OURS
from reading import WORDS, best_rate, figure
from targets import TARGETS, Results, Target, by_engine
from workloads import GROUPS

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).with_name("results.json")
SESSIONS = Path(__file__).with_name("sessions.json")
PAGE = ROOT / "docs" / "benchmarks.md"
FIGURE = ROOT / "docs" / "benchmarks.svg"
NONE_YET = "No run is recorded yet."


def blocks(results: Results) -> dict[str, str]:
    """Markdown of every block by its name."""
    return {name: make(results) for name, make in BLOCKS.items()}


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) if len(lines) > 2 else "Not measured in this run."


def _machine(results: Results) -> str:
    method = results["method"]
    return _run(results, [("rounds", f"{method['rounds']}, each with {method['warm']} warm passes")])


def _run(results: Results, more: Sequence[tuple[str, str]]) -> str:
    facts, method = results["machine"], results["method"]
    versions = ", ".join(f"{name} {version or 'absent'}" for name, version in results["versions"].items())
    caches = ", ".join(f"{name} {size}" for name, size in facts["caches"].items())
    load = ", ".join(f"{when} {value}" for when, value in method["load_average"].items())
    rows = [
        ("date", results["date"]),
        ("processor", f"{facts['processor']}, {facts['cores']} cores; {caches}"),
        ("memory", f"{facts['memory_bytes'] / 1e9:.1f} GB"),
        ("system", f"{facts['system']}, {facts['libc']}, Python {facts['python']}"),
        ("engines", versions),
        ("engine identity", f"`{results['engine_identity'][:16]}…`"),
        *more,
        ("load average", load),
        *((f"artifact {name}", f"SHA-256 `{a['sha256'][:16]}…`") for name, a in results["artifacts"].items()),
    ]
    return _table(("", "what these figures are of"), rows)


def _targets(results: Results) -> str:
    return _judged(TARGETS, results)


def _judged(targets: Sequence[Target], results: Results) -> str:
    rows = []
    for target in targets:
        worst = target.worst(results)
        limit = f"{'≥' if target.at_least else '≤'} {target.limit:g}{target.unit}"
        if worst is None:
            rows.append((target.what, limit, "not measured", ""))
        else:
            said = "met" if target.met(worst[0]) else "**missed**"
            rows.append((target.what, limit, f"{worst[0]:,.2f}{target.unit} ({worst[1]})", said))
    return _table(("measure", "target", "worst cell", ""), rows)


def _side_by_side(kind: str, workloads: Sequence[str]) -> Callable[[Results], str]:
    def make(results: Results) -> str:
        names = [name for name, version in results["versions"].items() if version is not None and name != OURS]
        rows = []
        for place, facts, cells in by_engine(results):
            artifact, _, workload = place.partition("/")
            if workload not in workloads or not any(cell[kind] for cell in cells.values()):
                continue
            ours = _rate(cells, OURS, kind, facts)
            told = [_told(cells.get(name), kind, facts, ours) for name in names]
            rows.append((artifact, workload, _told(cells.get(OURS), kind, facts, None), *told))
        return _table(("artifact", "text", OURS, *names), rows)

    return make


def _rate(cells: dict[str, dict[str, Any]], name: str, kind: str, facts: dict[str, Any]) -> float | None:
    return best_rate(cells[name], kind, facts) if name in cells else None


def _told(cell: dict[str, Any] | None, kind: str, facts: dict[str, Any], ours: float | None) -> str:
    """The figure of another engine, and ours as a multiple of it."""
    if cell is None:
        return "–"
    if cell["status"] in WORDS:
        return WORDS[cell["status"]]
    rate = best_rate(cell, kind, facts)
    if rate is None:
        return "–"
    return figure(rate, facts) + (f" (×{ours / rate:.2f})" if ours else "")


def _losses(results: Results) -> str:
    """Where another engine is ahead, in any pass: the regimes that a reader should know of."""
    rows = []
    for place, facts, cells in by_engine(results):
        for kind in ("first", "warm"):
            ours = _rate(cells, OURS, kind, facts)
            rates = {name: rate for name in cells if name != OURS and (rate := _rate(cells, name, kind, facts))}
            if ours and rates:
                best = max(rates, key=lambda name: rates[name])
                if rates[best] > ours:
                    rows.append((place, kind, figure(ours, facts), f"{best}: {figure(rates[best], facts)}"))
    return _table(("where", "pass", OURS, "ahead"), rows) if rows else "In no cell of this run."


def _sessions_machine(results: Results) -> str:
    method = results["method"]
    told = [("stores", f"on {method['file_system']}"), ("rounds", f"{method['rounds']}")]
    if method["quick"]:
        told.append(("**trial**", "with short texts and few calls: the figures say little"))
    told += [(f"left out: {row['artifact']}", f"{row['what']}: {row['reason']}") for row in results["left_out"]]
    return _run(results, told)


def _sessions(of: Callable[[Results], list[tuple[str, ...]]]) -> Callable[[Results], str]:
    return lambda results: _table(session_tables.HEADER, of(results))


def _refusals(results: Results) -> str:
    said: dict[tuple[str, str, str], list[str]] = {}
    for cell in results["cells"]:
        if cell["status"] in ("refused", "failed", "wrong"):
            where = said.setdefault((cell["engine"], cell["artifact"], f"{cell['status']}: {cell['reason']}"), [])
            where.append(cell["workload"])
    everywhere = {
        artifact: sum(p.startswith(f"{artifact}/") for p in results["workloads"]) for artifact in results["artifacts"]
    }
    rows = [
        (
            engine,
            artifact,
            "all" if len(where) == everywhere[artifact] else ", ".join(where),
            reason.replace("|", "\\|"),
        )
        for (engine, artifact, reason), where in sorted(said.items())
    ]
    return _table(("engine", "artifact", "texts", "what it said"), rows) if rows else "None in this run."


def _loads(results: Results) -> str:
    rows = [
        (
            row["artifact"],
            kind,
            f"{min(row[kind]['load_ns']) / 1e6:,.2f} ms",
            f"{min(row[kind]['first_ids_ns']) / 1e6:,.2f} ms",
            f"{statistics.median(row[kind]['first_ids_ns']) / 1e6:,.2f} ms",
            f"{min(row[kind]['first_ids_cpu_ns']) / 1e6:,.2f} ms",
        )
        for row in results["loads"]
        for kind in ("warm", "rehashed", "cold")
    ]
    return _table(("artifact", "load of toktier", "loaded", "first IDs", "median", "processor time"), rows)


def _peer_loads(results: Results) -> str:
    """What every worker's load and first call took, over all cells of an artifact."""
    seen: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
    for cell in results["cells"]:
        loads, calls = seen.setdefault((cell["artifact"], cell["engine"]), ([], []))
        loads += cell["load_ns"]
        calls += cell["first_call_ns"]
    rows = [
        (artifact, engine, f"{min(loads) / 1e6:,.1f} ms", f"{min(calls) / 1e6:,.3f} ms")
        for (artifact, engine), (loads, calls) in seen.items()
        if loads and calls
    ]
    return _table(("artifact", "engine", "load", "first call"), rows)


def _threads(results: Results) -> str:
    rows = []
    for row in results["threads"]:
        if row["status"] != "ok":
            rows.append((row["artifact"], row["engine"], WORDS[row["status"]], "", "", ""))
            continue

        def rate(kind: str, size: str = "bytes", row: dict[str, Any] = row) -> float:
            return float(row[size] / min(row[kind]) * 1000)

        processes = rate("two_processes_ns")
        both, long = rate("two_threads_ns"), rate("long_ns", "long_bytes")
        rows.append(
            (
                row["artifact"],
                row["engine"],
                f"{rate('one_thread_ns'):,.0f} MB/s",
                f"{processes:,.0f} MB/s",
                f"{both:,.0f} MB/s ({both / processes:.2f})",
                f"{long:,.0f} MB/s ({long / processes:.2f})",
            )
        )
    header = ("artifact", "engine", "one thread", "two processes", "two threads", "one long text, two threads")
    return _table(header, rows)


def _resident(results: Results) -> str:
    rows = []
    for row in results["resident"]:
        if row["status"] != "ok":
            rows.append((row["artifact"], row["engine"], WORDS[row["status"]], "", "", ""))
            continue
        steps = ("loaded", "first_call", "warmed", "soaked")
        told = [f"{row[step]['rss'] / 1e6:,.1f} MB" for step in steps]
        rows.append((row["artifact"], row["engine"], *told))
    size = max((row["bytes_encoded"] for row in results["resident"]), default=0) / 1e6
    header = ("artifact", "engine", "loaded", "first call", "warmed up", f"after {size:,.0f} MB")
    return _table(header, rows)


BLOCKS: dict[str, Callable[[Results], str]] = {
    "machine": _machine,
    "targets": _targets,
    "documents-first": _side_by_side("first", GROUPS["documents"]),
    "documents-warm": _side_by_side("warm", GROUPS["documents"]),
    "chats": _side_by_side("first", ("agent_chats",)),
    "short": _side_by_side("warm", GROUPS["short"]),
    "long": _side_by_side("first", GROUPS["long"]),
    "hostile": _side_by_side("first", GROUPS["hostile"]),
    "losses": _losses,
    "refusals": _refusals,
    "loads": _loads,
    "peer-loads": _peer_loads,
    "threads": _threads,
    "resident": _resident,
}

# Of sessions.json.
SESSION_BLOCKS: dict[str, Callable[[Results], str]] = {
    "sessions-machine": _sessions_machine,
    "sessions-targets": lambda results: _judged(session_targets.TARGETS, results),
    "sessions-appends": _sessions(session_tables.appends),
    "sessions-others": _sessions(session_tables.others),
}


def filled(page: str, results: Results | None, sessions: Results | None = None) -> str:
    """The page with every block written anew. Raises ValueError for a block that is missing, unknown or not closed."""
    written = dict.fromkeys((*BLOCKS, *SESSION_BLOCKS), NONE_YET)
    written |= {} if results is None else blocks(results)
    written |= {} if sessions is None else {name: make(sessions) for name, make in SESSION_BLOCKS.items()}
    opened = re.findall(r"^<!-- bench:([a-z-]+) -->$", page, re.MULTILINE)
    if sorted(opened) != sorted(written):
        raise ValueError(f"blocks of the page: {sorted(set(opened) ^ set(written)) or 'one stands twice'}")
    for name in opened:
        pattern = re.compile(rf"(<!-- bench:{name} -->\n).*?(<!-- /bench:{name} -->)", re.DOTALL)
        page, count = pattern.subn(lambda m, name=name: f"{m[1]}{written[name]}\n{m[2]}", page)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"the block {name} is not closed")
    return page


def drawn_from(figure_text: str) -> str | None:
    """Digest of the results that a figure was drawn from."""
    found = re.search(r"results ([0-9a-f]{64})", figure_text)
    return found[1] if found else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 where something is not as it would be"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--sessions", type=Path, default=SESSIONS)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--figure", type=Path, default=FIGURE)
    options = parser.parse_args(arguments)
    data = options.results.read_bytes() if options.results.exists() else None
    results = None if data is None else json.loads(data)
    sessions = json.loads(options.sessions.read_bytes()) if options.sessions.exists() else None
    page = options.page.read_text(encoding="utf-8")
    new = filled(page, results, sessions)
    digest = None if data is None else hashlib.sha256(data).hexdigest()
    if options.check:
        wrong = [str(options.page.name)] if new != page else []
        seen = options.figure.read_text(encoding="utf-8") if options.figure.exists() else ""
        if digest is not None and drawn_from(seen) != digest:
            wrong.append(options.figure.name)
        for name in wrong:
            print(f"report.py: {name} is not what the results give: run benchmarks/report.py", file=sys.stderr)
        return 1 if wrong else 0
    options.page.write_text(new, encoding="utf-8")
    if results is not None and digest is not None:
        from drawing import draw

        draw(results, digest, options.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
