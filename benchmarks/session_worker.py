#!/usr/bin/env python3
"""One measurement of sessions in a process of its own: `session_worker.py TASK`, a JSON object each way.

The task names one function below, an engine, a processor and what the function takes; texts lie in files. Times are of
the wall clock, one for each call, without collections of garbage inside. Each answer has `checks`: a text (so many
characters of the base, and what came behind them) and a digest of the ids that a session had for it, for whoever asked
to compare with the reference's. Not here: what to measure (`sessions.py`), adapters (`session_engines.py`).
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from session_engines import CUT_FROM, Refused, engine
from worker import timing

BLOCK = 1 << 16  # characters of an append by which a long session is made
REPLACED = 1024
FRESH_SECONDS = 3.0  # how long whole texts of one size are encoded
clock = time.perf_counter_ns


class Texts:
    """The text of every session is a beginning of `base`; what is appended comes from `deltas`: other chats."""

    def __init__(self, place: Path) -> None:
        self._base, self._deltas = place / "base.txt", place / "deltas.txt"

    @cached_property
    def base(self) -> str:
        return self._base.read_bytes().decode()

    @cached_property
    def deltas(self) -> str:
        return self._deltas.read_bytes().decode()

    def delta(self, at: int, size: int) -> str:
        """A new str object."""
        start = at % (len(self.deltas) - size)
        return self.deltas[start : start + size]

    def blocks(self, size: int) -> Iterator[str]:
        """The base, `size` characters of it, without holding it whole."""
        with self._base.open(encoding="utf-8", newline="") as stream:
            while size > 0 and (block := stream.read(min(BLOCK, size))):
                size -= len(block)
                yield block


Answer = dict[str, Any]


def check(base: int, grown: str, ids: bytes) -> Answer:
    return {"base": base, "grown": grown, "digest": timing.digest(ids)}


def fresh(own: Any, texts: Texts, *, sizes: Sequence[int], at_most: int, checks: Sequence[Answer] = ()) -> Answer:
    """Whole texts. `checks`: texts whose digests are wanted beside."""
    times: dict[str, list[int]] = {}
    found = []
    for size in sizes:
        taken = times.setdefault(str(size), [])
        while len(taken) < 2 or (len(taken) < at_most and sum(taken) < FRESH_SECONDS * 1e9):
            (text,) = timing.fresh([texts.base[:size]])
            start = clock()
            result = own.encode(text)
            taken.append(clock() - start)
        found.append(check(size, "", own.ids_of(result)))
    known = {(row["base"], row["grown"]) for row in found}
    for asked in checks:
        if (key := (asked["base"], asked["grown"])) not in known:
            known.add(key)
            result = own.encode(texts.base[: key[0]] + key[1])
            found.append(check(*key, own.ids_of(result)))
    return {"times": times, "checks": found}


def appends(
    own: Any, texts: Texts, *, sizes: Sequence[int], deltas: Sequence[int], counts: Sequence[int], rounds: int
) -> Answer:
    """Appends of each size, and replacements of the last kilobyte, to sessions of each length, in turns. A session that
    has grown by an eighth is cut back, which is not timed. Keys of `times`: length/delta, length/replace."""
    handles = {size: own.begin(f"of {size}", texts.blocks(size)) for size in sizes}
    grown = dict.fromkeys(sizes, "")
    times: dict[str, list[int]] = {}
    at = 0

    def back(size: int) -> None:
        handles[size].cut_back(lambda: texts.blocks(size), size)
        grown[size] = ""

    for size in sizes:
        handles[size].append(texts.delta(at, 16))
        back(size)
    for number in range(rounds):
        for size in (*sizes[number % len(sizes) :], *sizes[: number % len(sizes)]):
            handle = handles[size]
            for delta, count in zip(deltas, counts, strict=True):
                taken = times.setdefault(f"{size}/{delta}", [])
                for _ in range(count):
                    if grown[size] and len(grown[size]) + delta > size // 8:
                        back(size)
                    text, at = texts.delta(at, delta), at + delta
                    start = clock()
                    handle.append(text)
                    taken.append(clock() - start)
                    grown[size] += text
            if handle.replace is not None:
                back(size)
                taken = times.setdefault(f"{size}/replace", [])
                for _ in range(counts[0]):
                    text, at = texts.delta(at, REPLACED), at + REPLACED
                    start = clock()
                    handle.replace(size - REPLACED, text)
                    taken.append(clock() - start)
    return {"times": times, "checks": [_final(texts, size, handles[size], grown[size]) for size in sizes]}


def _final(texts: Texts, size: int, handle: Any, grown: str) -> Answer:
    """Where edits are possible the text is made what it was, piece by piece."""
    if handle.replace is None:
        return check(size, grown, handle.ids())
    handle.replace(size - REPLACED, "")
    end = texts.base[size - REPLACED : size]
    for at in range(0, REPLACED, CUT_FROM):
        handle.append(end[at : at + CUT_FROM])
    return check(size, "", handle.ids())


def transcript(own: Any, texts: Texts, *, size: int, count: int, growth: int) -> Answer:
    """The whole text is presented each time, longer by `growth` characters."""
    own.present("a transcript", texts.base[:size])
    taken, grown = [], ""
    for number in range(count):
        grown += texts.delta(number * growth, growth)
        whole = texts.base[:size] + grown
        start = clock()
        result = own.present("a transcript", whole)
        taken.append(clock() - start)
    return {"times": {"": taken}, "checks": [check(size, grown, own.ids_of(result))]}


def lookup(own: Any, texts: Texts, *, size: int, count: int, growth: int) -> Answer:
    """A text that begins with a stored one of `size` characters. Keys: `encode`, all of the call; `prefix`, what the
    store alone takes."""
    own.look_up(texts.base[:size])
    times: dict[str, list[int]] = {"encode": []}
    store = getattr(own, "store", None)
    for number in range(count):
        grown = texts.delta(number * growth, growth)
        text = texts.base[:size] + grown
        if store is not None:
            utf8, fingerprint = text.encode(), own.tok.fingerprint
            start = clock()
            prefix = store.longest_prefix(utf8, fingerprint)
            times.setdefault("prefix", []).append(clock() - start)
            if prefix is None or prefix.code_points < size * 9 // 10:
                raise AssertionError("the stored prefix is not found")
        start = clock()
        result = own.look_up(text)
        times["encode"].append(clock() - start)
    return {"times": times, "checks": [check(size, grown, own.ids_of(result))]}


def written(own: Any, texts: Texts, *, size: int, count: int, blocks: int, delta: int) -> Answer:
    """Bytes that the kernel counts as written to a disk, for one append; the mean of each block of `count`."""
    handle = own.begin("written", texts.blocks(size))
    figures, at = [], 0
    for _ in range(blocks):
        before = _written_bytes()
        for _ in range(count):
            handle.append(texts.delta(at, delta))
            at += delta
        figures.append((_written_bytes() - before) // count)
    return {"times": {"": figures}, "checks": []}


def _written_bytes() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["write_bytes"])


def memory(own: Any, texts: Texts, *, size: int) -> Answer:
    """Resident bytes of a session beyond what the process has once it encoded the same text."""
    for block in texts.blocks(size):
        own.encode(block)
    own.begin("the first one", ["hello world"])  # what is imported then is the program's
    before = _resident()
    handle = own.begin("held", texts.blocks(size))
    after = _resident()
    return {"times": {"": [max(0, after - before)]}, "checks": [check(size, "", handle.ids())]}


def _resident() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    fields = dict(line.split()[:2] for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return int(fields["Rss:"]) * 1024


def make(own: Any, texts: Texts, *, size: int) -> Answer:
    """Leaves a session in the store for `reopen`."""
    own.begin("reopened", texts.blocks(size))
    return {"times": {}, "checks": []}


def reopen(task: Answer, texts: Texts) -> Answer:
    """From the call that opens a session to the end of the first append: `session`; the same where what the first call
    imports was imported before (`imported`); and from before the package is imported (`process`)."""
    base, before = task["size"], task["before"]
    text = texts.delta(before, task["delta"])
    grown = texts.deltas[:before] + text
    whole = texts.base[:base] + texts.deltas[:before] if task["engine"] == "namesake" else ""
    begun = clock()
    own = engine(task["engine"], Path(task["file"]), Path(task["store"]), task["durability"])
    if task["imported"]:
        own.warm()
    start = clock()
    if task["engine"] == "namesake":
        context = own.tok.session(session_id="reopened.0", text=whole)
        session = context.__enter__()
        session.append_patch(text)
    else:
        session = own.tok.session("reopened")
        session.append(text)
    end = clock()
    times = {"imported" if task["imported"] else "session": [end - start], "process": [end - begun]}
    ids = session.ids
    return {"times": times, "checks": [check(base, grown, array("I", ids).tobytes())]}


TASKS: dict[str, Callable[..., Answer]] = {
    task.__name__: task for task in (fresh, appends, transcript, lookup, written, memory, make)
}


def answer(task: Answer) -> Answer:
    os.sched_setaffinity(0, [task.pop("cpu")])
    texts = Texts(Path(task.pop("texts")))
    name = task.pop("task")
    try:
        if name == "reopen":
            return reopen(task, texts)
        places = (task.pop("engine"), Path(task.pop("file")), task.pop("store"), task.pop("durability"))
        own = engine(places[0], places[1], Path(places[2]) if places[2] else None, places[3])
        gc.collect()
        gc.freeze()
        gc.disable()
        return TASKS[name](own, texts, **task)
    except Refused as reason:
        return {"refused": str(reason)}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an engine prints is no answer
    task = json.loads(sys.stdin.read())
    hidden = [part for part in (task["file"], task["texts"], task.get("store")) if part]
    try:
        told = answer(task)
    except Exception as error:
        line = f"{type(error).__name__}: {error}".split("\n")[0][:300]
        for part in hidden:
            line = line.replace(part, "...")
        told = {"error": line}
    answers.write(json.dumps(told) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
