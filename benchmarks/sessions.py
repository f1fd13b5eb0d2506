#!/usr/bin/env python3
"""What a change of a long text costs where a session holds it, beside encoding the whole anew, as ratios of one run.

Appends, replacements, whole transcripts, reopening, look-ups, bytes on disk and resident memory: sessions in memory, in
a store, and in a store with durability="full"; the package of our name where it is installed (`--namesake`). The ids of
sessions are compared with the reference's of the whole text; ends with 1 when any differ. Without arguments the small
family, `--quick` short texts and few calls: a trial that shows that everything works. docs/benchmarks.md says how it is
measured; `report.py` makes the tables of what `--out` wrote.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import machine
from engines import NAMESAKE, OURS, REFERENCE, Places
from session_tables import summary, told
from workloads import CORPORA, Material, Missing

from toktier.certify.conversations import render
from toktier.sessions.file_systems import type_of

MINI = Path(__file__).resolve().parent.parent / "tables/artifacts/toktier_mini/tokenizer.json"
SCHEMA = "toktier.session_bench_results"
WORKER = Path(__file__).with_name("session_worker.py")
TASK_SECONDS = 600
DELTA_CHATS = 4  # one chat of so many is kept for what is appended, so that it is not part of the text
MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
MODES = ("memory", "process", "full")


@dataclass(frozen=True)
class Scale:
    """How long the texts are, and how many calls. `counts`: appends of each delta in a round; `long`: the length of
    the session that is reopened, presented whole, weighed; `stored`: of the prefix that is looked up."""

    sizes: tuple[int, ...] = (1 << 12, 1 << 18, 1 << 22, 1 << 24)
    deltas: tuple[int, ...] = (16, 256, 4096)
    counts: tuple[int, ...] = (40, 40, 10)
    rounds: int = 10
    long: int = 1 << 22
    stored: int = 1 << 20
    calls: int = 30
    reopened: int = 10
    written: int = 1000
    weighed: int = 3


QUICK = Scale((1 << 12, 1 << 14), (16, 256, 4096), (3, 3, 2), 2, 1 << 14, 1 << 14, 3, 1, 20, 1)
GROWTH = 256


class Run:
    """One run: the options, who takes part, and the document that grows."""

    def __init__(self, options: argparse.Namespace, place: Path) -> None:
        self.scale = QUICK if options.quick else Scale()
        self.places = Places(None, options.namesake, options.namesake_home)
        versions = machine.versions(self.places, (OURS, REFERENCE, NAMESAKE))
        self.namesake = versions[NAMESAKE] is not None
        self.cpu = max(os.sched_getaffinity(0)) if options.cpu is None else options.cpu
        self.corpora: Path = options.corpora
        self.place, self.kind = place, type_of(place)
        self.document: dict[str, Any] = {
            **machine.heading(SCHEMA, versions),
            "method": {
                **asdict(self.scale),
                "quick": options.quick,
                "file_system": self.kind,
                "load_average": {"before": machine.load_average()},
            },
            "artifacts": {},
            "cells": [],
            "left_out": [],
        }

    def artifact(self, file: Path) -> None:
        """All that is measured with one tokenizer.json."""
        label = file.parent.name if file.name == "tokenizer.json" else file.stem
        data = file.read_bytes()
        self.document["artifacts"][label] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        added = [token["content"] for token in json.loads(data).get("added_tokens") or ()]
        with tempfile.TemporaryDirectory(dir=self.place) as texts:
            try:
                self._write_texts(Path(texts), added)
            except Missing as error:
                self._leave_out(label, "all", f"{error} is not here")
                return
            Artifact(self, label, file, Path(texts)).measure()

    def _leave_out(self, label: str, what: str, reason: str) -> None:
        self.document["left_out"].append({"artifact": label, "what": what, "reason": reason})
        print(f"{label:14} {what:14} left out: {reason}", flush=True)

    def _write_texts(self, place: Path, added: Sequence[str]) -> None:
        """The chats of the corpus over and over, with a running number before each, and those that are appended."""
        chats: list[list[str]] = [[], []]
        for number, chat in enumerate(Material(self.corpora).lines("agent_chats")):
            assert isinstance(chat, list)
            text = render(tuple((str(m["role"]), str(m["content"])) for m in chat), added)
            chats[number % DELTA_CHATS == DELTA_CHATS - 1].append(text)
        longest, size, number = max(self.scale.sizes), 0, 0
        with (place / "base.txt").open("w", encoding="utf-8", newline="") as out:
            while size < longest:
                text = f"{number}\n{chats[0][number % len(chats[0])]}"
                out.write(text)
                size, number = size + len(text), number + 1
        deltas = "".join(chats[1] or chats[0])
        shortest = 4 * max(self.scale.deltas)
        (place / "deltas.txt").write_bytes((deltas * (1 + shortest // len(deltas))).encode())


class Artifact:
    """The tasks of one tokenizer.json, each in a process of its own, and the ids that are compared at the end."""

    def __init__(self, run: Run, label: str, file: Path, texts: Path) -> None:
        self.run, self.label, self.file, self.texts = run, label, file.resolve(), texts
        self._checks: list[tuple[dict[str, Any], dict[str, Any]]] = []  # a cell and what was told of its ids

    def measure(self) -> None:
        scale = self.run.scale
        engines = [OURS, *([NAMESAKE] if self.run.namesake else [])]
        for engine in engines:
            self._cells("fresh", engine, None, self._ask(engine, "fresh", sizes=scale.sizes, at_most=20))
        for mode in MODES:
            for engine in engines:
                if engine == NAMESAKE and mode == "full":
                    continue  # its store syncs always
                self._appends(engine, mode)
        for engine in engines:
            self._others(engine)
        checks = [check for _, check in self._checks]
        told = self._ask(REFERENCE, "fresh", sizes=scale.sizes, at_most=3, checks=checks)
        self._cells("fresh", REFERENCE, None, told)
        self._compare(told)

    def _appends(self, engine: str, mode: str) -> None:
        scale = self.run.scale
        fewer = {"memory": 1, "process": 2, "full": 5}[mode] if engine == OURS else 10
        counts = [max(1, count // fewer) for count in scale.counts]
        rounds = scale.rounds if engine == OURS else 1
        more = {"sizes": scale.sizes, "deltas": scale.deltas, "counts": counts, "rounds": rounds}
        self._cells("append", engine, mode, self._ask(engine, "appends", mode, **more))

    def _others(self, engine: str) -> None:
        scale, few = self.run.scale, engine != OURS
        calls = 3 if few else scale.calls
        for mode in ("memory", "process"):
            told = self._ask(engine, "transcript", mode, size=scale.long, count=calls, growth=GROWTH)
            self._cells("transcript", engine, mode, told, scale.long, GROWTH)
            weights = [self._ask(engine, "memory", mode, size=scale.long) for _ in range(1 if few else scale.weighed)]
            self._cells("memory", engine, mode, _together(weights), scale.long)
        told = self._ask(engine, "lookup", "process", size=scale.stored, count=calls, growth=GROWTH)
        self._cells("lookup", engine, "process", told, scale.stored)
        for mode in ("process",) if few else ("process", "full"):
            self._reopened(engine, mode)
            if self.run.kind in MEMORY_FILE_SYSTEMS:
                self.run._leave_out(self.label, f"written ({mode})", f"stores lie in {self.run.kind}, not on a disk")
                continue
            count = 5 if few else scale.written // (1 if mode == "process" else 4)
            told = self._ask(
                engine, "written", mode, size=scale.long, count=max(1, count), blocks=1 if few else 3, delta=GROWTH
            )
            self._cells("written", engine, mode, told, scale.long, GROWTH)

    def _reopened(self, engine: str, mode: str) -> None:
        size, few = self.run.scale.long, engine != OURS
        with tempfile.TemporaryDirectory(dir=self.run.place) as store:
            answers = [self._ask(engine, "make", mode, store, size=size)]
            for number in range(2 * (1 if few else self.run.scale.reopened)):
                if "times" not in answers[-1]:
                    break
                more = {"size": size, "before": GROWTH * number, "delta": GROWTH, "imported": number % 2 == 1}
                answers.append(self._ask(engine, "reopen", mode, store, **more))
        told = _together(answers)
        told["checks"] = told.get("checks", [])[-1:]  # the last one holds what all of them appended
        self._cells("reopen", engine, mode, told, size, GROWTH)

    def _ask(
        self, engine: str, task: str, mode: str = "memory", store: str | None = None, **more: Any
    ) -> dict[str, Any]:
        """The answer of a new process; `error` or `refused` in it where there is none. Without `store`: one of its own,
        unless the session is in memory."""
        if store is None and mode != "memory":
            with tempfile.TemporaryDirectory(dir=self.run.place) as own:
                return self._ask(engine, task, mode, own, **more)
        places = self.run.places
        asked = {
            "task": task, "engine": engine, "cpu": self.run.cpu, "file": str(self.file), "texts": str(self.texts),
            "store": store, "durability": "full" if mode == "full" else "process", **more,
        }  # fmt: skip
        environment = places.environment(engine)
        if engine != NAMESAKE:
            environment["TOKTIER_HOME"] = str(self.run.place / "home")
        line = [str(places.interpreter(engine)), str(WORKER)]
        try:
            done = subprocess.run(
                line, input=json.dumps(asked), capture_output=True, text=True, env=environment, timeout=TASK_SECONDS,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"error": f"no answer within {TASK_SECONDS} seconds"}
        if not done.stdout:
            return {"error": f"the process ended with {done.returncode}"}
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def _cells(
        self, measure: str, engine: str, mode: str | None, told: dict[str, Any], size: int = 0, delta: int = 0
    ) -> None:
        """A cell for each kind of time that was told; one that says why where none was."""
        base = {"artifact": self.label, "engine": engine, "mode": mode}
        if "times" not in told:
            status = "refused" if "refused" in told else "failed"
            reason = told.get("refused") or told["error"]
            self._add({**base, "measure": measure, "characters": size or None, "delta": delta or None, "status": status,
                       "reason": reason, **summary([])})  # fmt: skip
            return
        for key, times in told["times"].items():
            what, characters, more = _named(measure, key, size, delta)
            row = {**base, "measure": what, "characters": characters, "delta": more, "status": "ok", "reason": None}
            cell = self._add({**row, **summary(times)})
            checks = [check for check in told["checks"] if _is_of(cell, check, measure)]
            if not checks and measure != "written":
                cell |= {"status": "failed", "reason": "nothing was told of its ids", **summary([])}
            self._checks += [(cell, check) for check in checks]

    def _add(self, cell: dict[str, Any]) -> dict[str, Any]:
        self.run.document["cells"].append(cell)
        print(told(cell), flush=True)
        return cell

    def _compare(self, reference: dict[str, Any]) -> None:
        right = {(row["base"], row["grown"]): row["digest"] for row in reference.get("checks", ())}
        for cell, check in self._checks:
            expected = right.get((check["base"], check["grown"]))
            if expected is None:
                cell |= {"status": "failed", "reason": "the reference gave nothing to compare with", **summary([])}
            elif expected != check["digest"]:
                cell |= {"status": "wrong", "reason": "its ids differ from the reference's", **summary([])}


def _named(measure: str, key: str, size: int, delta: int) -> tuple[str, int | None, int | None]:
    """Measure, length and delta of a kind of time, as the worker names it."""
    if measure == "fresh":
        return measure, int(key), None
    if measure == "append":
        length, _, of = key.partition("/")
        return ("replace", int(length), 1024) if of == "replace" else (measure, int(length), int(of))
    return measure + (f"_{key}" if key else ""), size, delta or None


def _is_of(cell: dict[str, Any], check: dict[str, Any], measure: str) -> bool:
    """Whether what was told of ids is of this cell: of its length, where one process had several."""
    return measure not in ("fresh", "append") or check["base"] == cell["characters"]


def _together(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Answers of the same task as one; the first that is none, alone."""
    whole: dict[str, Any] = {"times": {}, "checks": []}
    for answer in answers:
        if "times" not in answer:
            return answer
        for key, times in answer["times"].items():
            whole["times"].setdefault(key, []).extend(times)
        whole["checks"] += answer["checks"]
    return whole


def bad(document: dict[str, Any]) -> Iterator[str]:
    """A line for each cell of wrong ids, and for ours or the reference's that failed."""
    for cell in document["cells"]:
        if cell["status"] == "wrong" or (cell["status"] != "ok" and cell["engine"] in (OURS, REFERENCE)):
            yield f"{cell['status'].upper()}: {told(cell)}"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.store_dir) as place:
        run = Run(options, Path(place))
        print(f"{run.document['machine']['processor']}; processor {run.cpu}; stores in {run.kind}", flush=True)
        for file in options.files or [MINI]:
            run.artifact(file)
    run.document["method"]["load_average"]["after"] = machine.load_average()
    if options.out:
        options.out.write_text(json.dumps(run.document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    lines = list(bad(run.document))
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "files", nargs="*", type=Path, help="tokenizer.json files; without any, the family toktier_mini"
    )
    parser.add_argument("--quick", action="store_true", help="short texts, few calls: a trial whose figures say little")
    parser.add_argument("--cpu", type=int, help="the processor; without it, the last one at hand")
    parser.add_argument("--store-dir", type=Path, help="where stores lie; without it, the temporary directory")
    parser.add_argument("--corpora", type=Path, default=CORPORA, help="directory of agent_chats.jsonl.zst")
    parser.add_argument("--namesake", type=Path, help=f"interpreter of the environment that has the engine {NAMESAKE}")
    parser.add_argument("--namesake-home", type=Path, help="its TOKTIER_HOME, where the families lie")
    parser.add_argument("--out", type=Path, help="where the results are written, as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
