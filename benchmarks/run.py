#!/usr/bin/env python3
"""Speed of toktier beside the reference and the peers at hand, as ratios of one run; every result is compared.

Without arguments: the small family on the small texts, a trial. A number from one run is never compared with a number
from another. Megabytes are 10^6 bytes of UTF-8. Ends with 1 when any timed result differs from the reference's.
docs/benchmarks.md says how it is measured; `report.py` makes tables and the figure of what `--out` wrote.
"""

from __future__ import annotations

import argparse
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
from workloads import CORPORA, GROUPS, WORKLOADS, Material, Missing, Workload, documents

MINI = Path(__file__).resolve().parent.parent / "tables/artifacts/toktier_mini/tokenizer.json"
SCHEMA = "toktier.bench_results"
MEASURES = ("loads", "threads", "resident")
PARTS = ("cells", *MEASURES)


class Run:
    """One run: the options, who takes part, and the document that grows."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.places = Places(options.peers, options.namesake, options.namesake_home)
        # Ours and the reference always take part.
        wanted = [name for name in NAMES if name in {REFERENCE, OURS, *(options.engine or NAMES)}]
        versions = machine.versions(self.places, wanted)
        self.names = [name for name in wanted if versions[name] is not None]
        self.cpus = sorted(os.sched_getaffinity(0))
        self.cpu = self.cpus[-1] if options.cpu is None else options.cpu
        self.document: dict[str, Any] = {
            **machine.heading(SCHEMA, versions),
            "method": {
                "rounds": options.rounds,
                "warm": options.warm,
                "document_bytes": options.bytes,
                "piece_bytes": options.piece_bytes,
                "calls": options.calls,
                "load_average": {"before": machine.load_average()},
            },
            "artifacts": {},
            "workloads": {},
            **{part: [] for part in (*PARTS, "left_out")},
        }

    def artifact(self, file: Path, workloads: Sequence[str]) -> None:
        """All that was asked of one tokenizer.json."""
        label = file.parent.name if file.name == "tokenizer.json" else file.stem
        data = file.read_bytes()
        self.document["artifacts"][label] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        added = [token["content"] for token in json.loads(data).get("added_tokens") or ()]
        options = self.options
        material = Material(options.corpora, options.bytes, options.piece_bytes, options.calls, added)
        for name in (*workloads, *(options.measure or ())):
            try:
                if name in MEASURES:
                    self._measure(label, file, name, material)
                else:
                    self._compare(label, file, WORKLOADS[name](material))
            except Missing as error:
                reason = f"{error} is not here"
                self.document["left_out"].append({"artifact": label, "what": name, "reason": reason})
                print(f"{label:14} {name:14} left out: {reason}", flush=True)

    def _compare(self, label: str, file: Path, workload: Workload) -> None:
        cells = side_by_side.compare(
            self.names,
            file,
            workload,
            cpu=self.cpu,
            places=self.places,
            rounds=self.options.rounds,
            warm=self.options.warm,
        )
        facts = {
            "kind": workload.kind,
            "texts": len(workload.texts),
            "bytes": workload.utf8_bytes,
            "calls": workload.calls,
        }
        self.document["workloads"][f"{label}/{workload.name}"] = facts
        self.document["cells"] += [{"artifact": label, "workload": workload.name, **cell} for cell in cells]
        for kind in ("first", "warm"):
            ours = best_rate(cells[self.names.index(OURS)], kind, facts)
            told = "  ".join(f"{cell['engine']} {cell_text(cell, kind, facts, ours)}" for cell in cells)
            print(f"{label:14} {workload.name:14} {kind:5}  {told}", flush=True)

    def _measure(self, label: str, file: Path, measure: str, material: Material) -> None:
        places, rounds = self.places, self.options.rounds
        rows: list[dict[str, Any]]
        if measure == "loads":
            rows = [{"engine": OURS, "status": "ok", **loads.measure(file, cpu=self.cpu, runs=4 * rounds)}]
        elif measure == "threads":
            if len(self.cpus) < 2:
                raise Missing("a second processor")
            cpus = [self.cpu, *(cpu for cpu in self.cpus if cpu != self.cpu)]
            batch = documents("english", material)
            long = Workload("joined", "passes", ("\n\n".join(batch.texts),))
            rows = threads.measure(self.names, file, batch, long, cpus=cpus, places=places, rounds=rounds)
        else:
            total = self.options.soak_bytes
            rows = resident.measure(self.names, file, material, cpu=self.cpu, places=places, total=total)
        self.document[measure] += [{"artifact": label, **row} for row in rows]
        for row in rows:
            print(f"{label:14} {measure:14} {json.dumps(row)}", flush=True)

    def bad(self) -> list[str]:
        """A line for each engine that gave wrong ids, and for ours or the reference where it failed. That a peer
        crashes or never ends is a result, and stands in the tables."""
        return [
            f"{row['status'].upper()}: {row['artifact']} {row.get('workload', part)} {row['engine']}: {row['reason']}"
            for part in PARTS
            for row in self.document[part]
            if row["status"] == "wrong" or (row["status"] == "failed" and row["engine"] in (OURS, REFERENCE))
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    run = Run(options)
    processor = run.document["machine"]["processor"]
    print(f"{processor}; processor {run.cpu} of {len(run.cpus)}; engines: {', '.join(run.names)}", flush=True)
    for file in options.files or [MINI]:
        run.artifact(file, _asked(options))
    run.document["method"]["load_average"]["after"] = machine.load_average()
    if options.out:
        options.out.write_text(json.dumps(run.document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    bad = run.bad()
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


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
    parser.add_argument("--workload", "--corpus", action="append", choices=known, metavar="NAME",
                        help=", ".join(known))  # fmt: skip
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
