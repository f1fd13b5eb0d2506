"""Results of `router.py` as tables in Markdown, and what of them was aimed at. Not here: measuring.

python benchmarks/router_tables.py router.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

SAVED_TARGET: Final = 0.8  # of the most that any choice of slots could save
CPU_TARGET: Final = 1.5  # of the processor time of the pass-through
ROUTER: Final = "router"  # the mode that the target is about

_SAVINGS = ("route", "order", "mode", "prefilled", "saved", "of the most", "first token, mean", "p95", "same answers")
_COSTS = (
    "request",
    "answer",
    "CPU, bare",
    "CPU, router",
    "ratio",
    "direct",
    "bare",
    "router",
    "added p50",
    "added p99",
)


def tables(document: dict[str, Any]) -> Iterator[str]:
    for part in document["savings"]:
        yield from _savings(part)
        yield ""
    for part in document["costs"]:
        yield from _costs(part)
        yield ""
    yield from verdict(document)


def _savings(part: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{part['model']} ({part['weights']}): {part['conversations']} conversations of {part['turns']} turns, "
        f"{part['slots']} slots, prompts up to {part['longest_prompt']:,} tokens, "
        f"{part['rows'][0]['prompt_tokens']:,} in all. {_load(part)}"
    )
    yield ""
    rows = (
        (
            row["route"],
            row["order"],
            row["mode"],
            f"{row['evaluated_tokens']:,}",
            f"{row['saved_tokens']:,}",
            f"{row['of_most']:.1%}",
            f"{1000 * row['first_token_mean']:.0f} ms",
            f"{1000 * row['first_token_p95']:.0f} ms",
            f"{row['requests'] - len(row['different_answers'])} of {row['requests']}",
        )
        for row in part["rows"]
    )
    yield from _table(_SAVINGS, rows, left=3)


def _costs(part: dict[str, Any]) -> Iterator[str]:
    yield f"Prompts of about {part['tokens']:,} tokens; first byte of the answer, p50 / p99. {_load(part)}"
    yield ""
    rows = []
    for row in part["rows"]:
        first = row["first_byte_ms"]
        added = (f"{first['router'][q] - first['direct'][q]:.1f} ms" for q in ("p50", "p99"))
        rows.append(
            (
                row["kind"],
                "stream" if row["stream"] else "whole",
                *(f"{row['cpu_ms'][way]:.2f} ms" for way in ("pass-through", "router")),
                f"{row['cpu_ratio']:.2f}",
                *(f"{value['p50']:.1f} / {value['p99']:.1f} ms" for value in first.values()),
                *added,
            )
        )
    yield from _table(_COSTS, rows, left=2)


def _load(part: dict[str, Any]) -> str:
    before, after = part["load_average"]
    return f"Load average {before:.1f} before, {after:.1f} after."


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> Iterator[str]:
    yield f"| {' | '.join(names)} |"
    yield "|" + "---|" * left + "--:|" * (len(names) - left)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def verdict(document: dict[str, Any]) -> Iterator[str]:
    """What was aimed at, and what was reached: every order of turns, and the worst kind of request."""
    for part in document["savings"]:
        for row in part["rows"]:
            if row["mode"] == ROUTER:
                said = "reached" if row["of_most"] >= SAVED_TARGET else "MISSED"
                yield (
                    f"target {SAVED_TARGET:.0%} of the most that can be saved, {part['model']}, {row['route']}, "
                    f"{row['order']}: {row['of_most']:.1%}, {said}"
                )
            if row["miscounted"]:
                yield f"{row['mode']}, {row['order']}: {row['miscounted']} answers counted other tokens than were sent"
    for part in document["costs"]:
        for row in part["rows"]:
            said = "reached" if row["cpu_ratio"] <= CPU_TARGET else "MISSED"
            kind = f"{row['kind']}, {'stream' if row['stream'] else 'whole'}"
            yield (
                f"target {CPU_TARGET} times the processor time of a bare pass-through, {kind}: "
                f"{row['cpu_ratio']:.2f}, {said}"
            )


def page(text: str, document: dict[str, Any]) -> str:
    """The page with the tables of `document` between its marks, `<!-- bench:router-NAME -->` each."""
    parts = {
        "savings": [line for part in document["savings"] for line in (*_savings(part), "")],
        "costs": [line for part in document["costs"] for line in (*_costs(part), "")],
        "machine": [_machine(document), ""],
    }
    for name, lines in parts.items():
        begin, end = f"<!-- bench:router-{name} -->\n", f"<!-- /bench:router-{name} -->\n"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"the page has no place for {name}: expected {begin.strip()} and {end.strip()}")
        text = before + begin + "\n".join(lines) + end + after
    return text


def _machine(document: dict[str, Any]) -> str:
    machine = document["machine"]
    return (
        f"{document['date']}, {machine['processor']}, {machine['cores']} cores, {machine['system']}, Python "
        f"{machine['python']}; {document['llama_server']}; engine `{document['engine_identity'][:16]}…`."
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--into", type=Path, help="a page whose tables are written anew")
    given = parser.parse_args(arguments)
    document = json.loads(given.results.read_text("utf-8"))
    if given.into is None:
        print("\n".join(tables(document)))
    else:
        given.into.write_text(page(given.into.read_text("utf-8"), document), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
