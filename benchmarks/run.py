#!/usr/bin/env python3
"""Speed of toktier beside the reference and the peers at hand, as ratios of one run; every result is compared.

Without arguments: the small family on the small texts, a trial. A number from one run is never compared with a number
from another. Megabytes are 10^6 bytes of UTF-8. Ends with 1 when any timed result differs from the reference's.
docs/benchmarks.md says how it is measured; `report.py` makes tables and the figure of what `--out` wrote.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import loads
import machine
import resident
import side_by_side
import threads
from engines import NAMES, NAMESAKE, OURS, REFERENCE, Places
from reading import best_rate, cell_text
from workloads import CORPORA, GROUPS, WORKLOADS, Material, Missing, documents, long_text

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = "toktier.bench_results"
MEASURES = ("loads", "threads", "resident")
LONG_MEGABYTES = 4  # of the one text that two threads share


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    names = [name for name in NAMES if name in (options.engine or NAMES)]
    for needed in (REFERENCE, OURS):
        if needed not in names:
            names.insert(0, needed)
    places = Places(options.peers, options.namesake, options.namesake_home)
    versions = machine.versions(places, names)
    names = [name for name in names if versions[name] is not None]
    files = options.files or [ROOT / "tables/artifacts/toktier_mini/tokenizer.json"]
    asked = _asked(options)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "schema_version": 1,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine.facts(),
        "engine_identity": machine.engine_identity(),
        "versions": versions,
        "method": {
            "rounds": options.rounds, "warm": options.warm, "document_bytes": options.bytes,
            "piece_bytes": options.piece_bytes, "calls": options.calls,
            "load_average": {"before": machine.load_average()},
        },
        "artifacts": {}, "workloads": {}, "cells": [], "loads": [], "threads": [], "resident": [], "left_out": [],
    }  # fmt: skip
    cpus = sorted(os.sched_getaffinity(0))
    cpu = cpus[-1] if options.cpu is None else options.cpu
    print(
        f"{document['machine']['processor']}; processor {cpu} of {len(cpus)}; engines: {', '.join(names)}", flush=True
    )
    for file in files:
        label = file.parent.name if file.name == "tokenizer.json" else file.stem
        data = file.read_bytes()
        document["artifacts"][label] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        added = [token["content"] for token in json.loads(data).get("added_tokens") or ()]
        material = Material(options.corpora, options.bytes, options.piece_bytes, options.calls, added)
        for name in asked:
            _compare(document, label, file, name, material, names, cpu, places, options)
        for measure in options.measure or ():
            _measure(
                document, label, file, measure, material, names, [cpu, *(c for c in cpus if c != cpu)], places, options
            )
    document["method"]["load_average"]["after"] = machine.load_average()
    if options.out:
        options.out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    bad = [row for part in ("cells", "threads") for row in document[part] if row["status"] in ("wrong", "failed")]
    for row in bad:
        print(
            f"{row['status'].upper()}: {row['artifact']} {row.get('workload', 'threads')} {row['engine']}: {row['reason']}"
        )
    return 1 if bad else 0


def _compare(
    document: dict[str, Any],
    label: str,
    file: Path,
    name: str,
    material: Material,
    names: Sequence[str],
    cpu: int,
    places: Places,
    options: argparse.Namespace,
) -> None:
    try:
        workload = WORKLOADS[name](material)
    except Missing as error:
        document["left_out"].append({"artifact": label, "workload": name, "reason": f"{error} is not here"})
        print(f"{label:14} {name:14} left out: {error} is not here", flush=True)
        return
    facts = {"kind": workload.kind, "texts": len(workload.texts), "bytes": workload.utf8_bytes, "calls": workload.calls}
    cells = side_by_side.compare(
        names, file, workload, cpu=cpu, places=places, rounds=options.rounds, warm=options.warm
    )
    document["workloads"][f"{label}/{name}"] = facts
    document["cells"] += [{"artifact": label, "workload": name, **cell} for cell in cells]
    for kind in ("first", "warm"):
        base = {cell["engine"]: best_rate(cell, kind, facts) for cell in cells}
        told = "  ".join(f"{cell['engine']} {cell_text(cell, kind, facts, base.get(OURS))}" for cell in cells)
        print(f"{label:14} {name:14} {kind:5}  {told}", flush=True)


def _measure(
    document: dict[str, Any],
    label: str,
    file: Path,
    measure: str,
    material: Material,
    names: Sequence[str],
    cpus: Sequence[int],
    places: Places,
    options: argparse.Namespace,
) -> None:
    try:
        if measure == "loads":
            rows = [{"engine": OURS, **loads.measure(file, cpu=cpus[0], runs=4 * options.rounds)}]
        elif measure == "threads":
            if len(cpus) < 2:
                raise Missing("a second processor")
            batch, long = documents("english", material), long_text(LONG_MEGABYTES, material)
            rows = threads.measure(names, file, batch, long, cpus=cpus, places=places, rounds=options.rounds)
        else:
            rows = resident.measure(names, file, material, cpu=cpus[0], places=places, total=options.soak_bytes)
    except Missing as error:
        document["left_out"].append({"artifact": label, "workload": measure, "reason": f"{error} is not here"})
        print(f"{label:14} {measure:14} left out: {error} is not here", flush=True)
        return
    document[measure] += [{"artifact": label, **row} for row in rows]
    for row in rows:
        print(f"{label:14} {measure:14} {json.dumps(row)}", flush=True)


def _asked(options: argparse.Namespace) -> list[str]:
    """Names of workloads in their order; groups stand for theirs."""
    given = options.workload or ([] if options.measure else ["sample", "hello"])
    wanted = {name for word in given for name in GROUPS.get(word, (word,))}
    if "all" in wanted:
        wanted = set(WORKLOADS) - {"sample"}
    return [name for name in WORKLOADS if name in wanted]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    known = ["all", *GROUPS, *WORKLOADS]
    parser.add_argument(
        "files", nargs="*", type=Path, help="tokenizer.json files; without any, the family toktier_mini"
    )
    parser.add_argument("--workload", "--corpus", action="append", choices=known, metavar="NAME", help=", ".join(known))
    parser.add_argument("--measure", action="append", choices=MEASURES, help="also, or without --workload alone")
    parser.add_argument("--engine", action="append", choices=NAMES, help="ours and the reference always take part")
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes of each engine")
    parser.add_argument("--warm", type=int, default=2, help="timed warm passes in each round")
    parser.add_argument("--bytes", type=int, default=Material.document_bytes, help="of documents in a pass")
    parser.add_argument("--piece-bytes", type=int, default=Material.piece_bytes, help="of a hostile piece")
    parser.add_argument("--calls", type=int, default=Material.calls, help="of a short text in a timed section")
    parser.add_argument("--soak-bytes", type=int, default=64_000_000, help="of mixed text, for resident memory")
    parser.add_argument("--cpu", type=int, help="the processor; without it, the last one at hand")
    parser.add_argument("--corpora", type=Path, default=CORPORA, help="directory of NAME.jsonl.zst")
    parser.add_argument("--peers", type=Path, help="directory of `pip install --target` with peers")
    parser.add_argument("--namesake", type=Path, help=f"interpreter of the environment that has the engine {NAMESAKE}")
    parser.add_argument("--namesake-home", type=Path, help="its TOKTIER_HOME, where the families lie")
    parser.add_argument("--out", type=Path, help="where the results are written, as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
