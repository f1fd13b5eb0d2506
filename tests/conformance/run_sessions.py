"""Random edit scripts through sessions of the native engine against the installed reference; prints what was compared.

python -m tests.conformance.run_sessions [--scripts 100000] [--seed S] [--workers N] [--seconds S] tokenizer.json ...

Scripts are those of toktier/certify/edit_scripts.py: after every edit the ids that the patches alone give are those of
a fresh encoding of the whole text. One in 20 begins with a text in which a session keeps places to begin. Exit 1 on a
mismatch, when a script was not served by the native engine, or when nothing was compared.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, field
from pathlib import Path

import tokenizers

from tests.conformance.adapter import NotServedNatively, native_tokenizer
from toktier._native import SessionBase
from toktier.certify.edit_scripts import Edit, Material, Script, difference, play, random_script, to_rows
from toktier.certify.subject import Subject
from toktier.certify.suites.fuzz import vocabulary_texts
from toktier.certify.suites.sessions import BASE, class_edges

PER_TASK = 500  # scripts: a few seconds
EDITS = (4, 8, 12, 20)
WITH_PLACES_ONE_IN = 20
SHOWN = 5


@dataclass
class Count:
    scripts: int = 0
    steps: int = 0
    utf8_bytes: int = 0
    ids: int = 0
    mismatches: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, other: Count) -> None:
        for name in ("scripts", "steps", "utf8_bytes", "ids", "mismatches"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.shown += other.shown


class Bench:
    """One tokenizer.json in one process."""

    def __init__(self, path: str) -> None:
        subject = Subject(Path(path))
        self.tokenizer = native_tokenizer(path)
        self.reference = tokenizers.Tokenizer.from_file(path)
        self.reference.no_truncation()
        self.reference.no_padding()
        added = [placed.token.content for placed in subject.spec.added_tokens]
        self.material = Material(added, class_edges(subject), vocabulary_texts(subject))

    def scripts(self, seed: str, count: int) -> Iterable[Script]:
        rng = random.Random(seed)
        for _ in range(count):
            base = rng.choice(BASE) if rng.randrange(WITH_PLACES_ONE_IN) == 0 else 0
            yield random_script(rng, self.material, rng.choice(EDITS), base)

    def compare(self, scripts: Iterable[Script]) -> Count:
        count = Count()
        for script in scripts:
            count.scripts += 1
            calls = self.tokenizer.native_calls[0]
            for step in play(lambda: SessionBase(self.tokenizer), script):
                expected = self.reference.encode(step.text, add_special_tokens=False).ids
                count.steps += 1
                count.utf8_bytes += len(step.text.encode())
                count.ids += len(expected)
                what = difference(step, expected)
                if what is not None:
                    count.mismatches += 1
                    count.shown.append(f"{what}: {to_rows(script[: step.edit + 1])} {step.error or ''}")
                    break
            if self.tokenizer.native_calls[0] == calls and any(_changes(script)):
                raise NotServedNatively(f"no change was counted of {to_rows(script)}")
        return count


def _changes(script: Script) -> Iterable[Edit]:
    return (edit for edit in script if edit.text)


_benches: dict[str, Bench] = {}


def _task(path: str, seed: str, count: int, until: float) -> Count:
    if time.time() >= until:
        return Count()
    if path not in _benches:
        _benches.clear()
        _benches[path] = Bench(path)
    bench = _benches[path]
    return bench.compare(bench.scripts(seed, count))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="tokenizer.json")
    parser.add_argument("--scripts", type=int, default=100_000, help="of each file")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of each file; no script begins later")
    options = parser.parse_args()
    total = Count()
    with ProcessPoolExecutor(options.workers) as pool:
        for path in options.paths:
            start = time.time()
            until = start + options.seconds
            of_file = Count()
            tasks = []
            for number, begin in enumerate(range(0, options.scripts, PER_TASK)):
                size = min(PER_TASK, options.scripts - begin)
                tasks.append(pool.submit(_task, path, f"{options.seed} {number}", size, until))
            for task in tasks:
                of_file.add(task.result())
            scripts, steps, size, ids, mismatches, shown = astuple(of_file)
            print(
                f"{path} scripts={scripts} steps={steps} utf8_bytes={size} ids={ids} mismatches={mismatches} "
                f"seconds={time.time() - start:.1f}",
                flush=True,
            )
            for line in shown[:SHOWN]:
                print(f"  MISMATCH {line}", flush=True)
            total.add(of_file)
    print(
        f"tokenizers {tokenizers.__version__}: {total.scripts} scripts, {total.steps} steps compared, "
        f"{total.mismatches} mismatches"
    )
    return int(total.mismatches > 0 or total.steps == 0)


if __name__ == "__main__":
    sys.exit(main())
