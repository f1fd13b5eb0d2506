#!/usr/bin/env python3
"""One engine in a process of its own, which does what it is told, a JSON line at a time.

An engine that crashes ends its own worker; one whose package bears our name lives in another environment. Workers on
one processor take turns, so that all engines meet the same seconds of the machine. Started by `workers.py`.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import json
import os
import platform
import site
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def load_timing() -> Any:
    """timing.py by its path: another environment has a package of the same name, and not this file."""
    spec = importlib.util.spec_from_file_location("timing", ROOT / "toktier_cli" / "bench" / "timing.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


timing = load_timing()


class Worker:
    """The engine, its texts, and one method for each thing that a line may ask."""

    def __init__(self) -> None:
        self.engine: Any = None
        self.texts: list[str] = []

    def open(self, engine: str, file: str, cpus: list[int], peers: str | None, settle: bool) -> dict[str, Any]:
        """Loads the engine, on these processors alone. `settle`: see `timing.settle_heap`."""
        os.sched_setaffinity(0, cpus)
        if peers:
            site.addsitedir(peers)
        if engine == "namesake":
            from namesake import Namesake as kind  # of the environment of this process
            from namesake import Refused
        else:
            from toktier_cli.bench import engines

            kind, Refused = engines.engine(engine), engines.Refused
        start = time.perf_counter_ns()
        try:
            self.engine = kind(Path(file))
        except Refused as reason:
            return {"refused": str(reason)}
        except ModuleNotFoundError:
            return {"absent": True}
        took = time.perf_counter_ns() - start
        return {"load_ns": getattr(self.engine, "load_ns", took), "settled": settle and timing.settle_heap()}

    def take(self, texts: list[str]) -> dict[str, Any]:
        self.texts = texts
        return {}

    def one(self, text: str) -> dict[str, Any]:
        """The first call: what an engine puts off until then is paid here."""
        took, (result,) = timing.timed_pass(self.engine.encode, [text])
        return {**took._asdict(), "digest": timing.digest(self.engine.ids_of(result))}

    def run(self) -> dict[str, Any]:
        """One pass over all texts."""
        took, results = timing.timed_pass(self.engine.encode, timing.fresh(self.texts))
        ids = [self.engine.ids_of(result) for result in results]
        return {**took._asdict(), "digests": list(map(timing.digest, ids)), "tokens": sum(map(len, ids)) // 4}

    def touch(self) -> dict[str, Any]:
        """A pass that nobody times: the other engines had the caches of the processor meanwhile."""
        for text in timing.fresh(self.texts):
            self.engine.encode(text)
        return {}

    def calls(self, count: int) -> dict[str, Any]:
        """`count` calls on the texts in turn; the last ones are compared."""
        texts = timing.fresh([self.texts[i % len(self.texts)] for i in range(count)])
        took, results = timing.timed_calls(self.engine.encode, texts)
        ids = [self.engine.ids_of(result) for result in results]
        return {**took._asdict(), "digests": list(map(timing.digest, ids)), "tokens": sum(map(len, ids)) // 4}

    def touch_batch(self) -> dict[str, Any]:
        """The texts once through the batch call, on one thread and on two: pools and contexts are there afterwards."""
        for threads in (1, 2):
            self.engine.encode_batch(timing.fresh(self.texts), threads)
        return {}

    def batch(self, threads: int, at_ns: int | None = None) -> dict[str, Any]:
        """All texts in one call. `at_ns`: on this tick of the clock that all processes share."""
        texts = timing.fresh(self.texts)
        while at_ns is not None and time.monotonic_ns() < at_ns:
            pass
        start = time.monotonic_ns()
        result = self.engine.encode_batch(texts, threads)
        end = time.monotonic_ns()
        return {"start_ns": start, "end_ns": end, "digests": list(map(timing.digest, self.engine.ids_of_batch(result)))}

    def soak(self, texts: list[str]) -> dict[str, Any]:
        """Texts that are encoded and forgotten."""
        for text in texts:
            self.engine.encode(text)
        return {}

    def memory(self) -> dict[str, Any]:
        """Resident memory of the process, and the part of it that no other process shares, once the C library has given
        back what it holds for nobody."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        figures = {}
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
            name, value = line.split()[:2]
            figures[name.rstrip(":")] = int(value) * 1024
        return {"rss": figures["Rss"], "private": figures["Private_Clean"] + figures["Private_Dirty"]}

    def facts(self) -> dict[str, Any]:
        return {"python": platform.python_version(), "served": getattr(self.engine, "served", None)}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an engine prints is no answer
    worker = Worker()
    for line in sys.stdin:
        asked = json.loads(line)
        method: Callable[..., dict[str, Any]] = getattr(worker, asked.pop("do"))
        try:
            answer = method(**asked)
        except (Exception, SystemExit) as error:
            answer = {"error": f"{type(error).__name__}: {error}".split("\n")[0][:300]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
