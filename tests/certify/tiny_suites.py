"""Three suites of a second in all, and the command with them in place of the real ones, for tests of the runner.

`TINY_FAULT` in the environment plants one: `ids`, `value`, `raise`, `hang`, `die`, `route`, `slow`, and `held`, under
which a run cannot end before the file `TINY_GATE` is there. Run as a program it is the command:
`python tests/certify/tiny_suites.py certify ...`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from toktier import resources  # noqa: E402
from toktier.certify import suites as registered  # noqa: E402
from toktier.certify.checkpoint import Checkpoint, begin  # noqa: E402
from toktier.certify.levels import Level  # noqa: E402
from toktier.certify.plan import Prepared, Shard, installed_engine, make_plan  # noqa: E402
from toktier.certify.subject import Subject  # noqa: E402
from toktier.certify.suite import Suite, SuitePlan, TextSuite  # noqa: E402
from toktier.certify.tally import Tally  # noqa: E402

MINI = resources.tables_dir() / "artifacts" / "toktier_mini" / "tokenizer.json"
WORDS = ("hello", " world", "Größe", "12,345", "\n\n", "日本", "🙂", "don't", "  x", "ab" * 9)
BAD_BLOCK = 4
HELD_FROM = 5  # the first block that waits for the gate


def fault() -> str:
    return os.environ.get("TINY_FAULT", "")


class Words(TextSuite):
    name = "words"
    meaning = "words beside words"

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        return SuitePlan(13, {"words": len(WORDS), "note": "all pairs"}, payload=list(WORDS))

    def texts(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int) -> Iterable[str]:
        if block == BAD_BLOCK:
            misbehave()
        if fault() == "slow":
            time.sleep(0.15)
        if fault() == "held" and block >= HELD_FROM:
            wait_for_the_gate()
        for left in plan.payload:
            yield f"{left}{WORDS[(block + seed) % len(WORDS)]}{block}"


class Values(Suite):
    name = "values"
    meaning = "numbers are themselves"

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        return SuitePlan(8)

    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        for number in range(5):
            wrong = fault() == "value" and block == 2 and number == 3
            tally.check("number", f"{block}.{number}", number + wrong, number)


class Silent(Suite):
    name = "silent"
    meaning = "nothing"

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        return SuitePlan(0, why="there is nothing to say")

    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        raise AssertionError("it has no block")


SUITES: tuple[Suite, ...] = (Words(), Values(), Silent())
BLOCKS = 21


def misbehave() -> None:
    if fault() == "raise":
        raise ValueError("planted")
    if fault() == "hang":
        time.sleep(1000)
    if fault() == "die":
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for_the_gate() -> None:
    """Not for ever: whoever was to open it may have failed."""
    until = time.monotonic() + 900
    while not os.path.exists(os.environ["TINY_GATE"]) and time.monotonic() < until:
        time.sleep(0.01)


class PlantedSubject(Subject):
    """A backend that errs where a text has U+00DF after U+00F6, or hands everything to the reference."""

    def encode(self, text: str, add_special_tokens: bool = False, plain: bool = False) -> Any:
        got = super().encode(text, add_special_tokens, plain)
        if fault() == "route":
            return SimpleNamespace(backend="hf", ids=got.ids, offsets=got.offsets)
        if fault() == "ids" and "öß" in text:
            return SimpleNamespace(backend=got.backend, ids=[*got.ids[:-1], 1], offsets=got.offsets)
        return got


def prepare(home: Path, suites: Sequence[Suite] = SUITES, seed: int = 0) -> Prepared:
    return make_plan(PlantedSubject(MINI, home=home), suites, Level.QUICK, seed, "toktier_mini")


def start(prepared: Prepared, directory: Path, shard: Shard = Shard()) -> Checkpoint:  # noqa: B008 - it is frozen
    return begin(directory, prepared.plan, shard, build(), {"artifact": str(MINI), "corpora": []})


def build(**changes: str) -> dict[str, str]:
    return {"compiler": "some", "identity": installed_engine(), **changes}


def install() -> None:
    """The tiny suites and the planted subject in place of the real ones, in this process."""
    from toktier.certify import subject

    registered.SUITES = SUITES
    subject.Subject = PlantedSubject  # type: ignore[misc]


if __name__ == "__main__":
    from toktier_cli.main import main

    install()
    sys.exit(main())
