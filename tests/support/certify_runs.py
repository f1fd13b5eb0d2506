"""Running a suite of the certification whole, in this process, and planting faults in what it certifies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import toktier
from tests.support.material import load_json
from toktier.certify.levels import Level
from toktier.certify.subject import Subject
from toktier.certify.suite import Suite, SuitePlan
from toktier.certify.tally import Counts, Tally


@dataclass
class SuiteRun:
    """What a suite counted. `digests`: of every block, in order."""

    plan: SuitePlan
    counts: Counts = field(default_factory=Counts)
    failures: list[dict[str, Any]] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)


def run_suite(
    suite: Suite,
    subject: Subject,
    level: Level = Level.QUICK,
    seed: int = 1,
    until_mismatch: bool = False,
    blocks: Iterable[int] | None = None,
) -> SuiteRun:
    """Plans the suite and runs all its blocks (or `blocks`), or `until_mismatch` up to the first that reports one."""
    run = SuiteRun(suite.plan(subject, level, seed))
    for block in range(run.plan.blocks) if blocks is None else blocks:
        tally = Tally(subject, suite.name, block)
        suite.run(subject, level, seed, run.plan, block, tally)
        run.counts.add(tally.counts)
        run.failures += tally.failures
        run.digests.append(tally.digest())
        if until_mismatch and run.counts.mismatches:
            break
    return run


def changed_file(path: Path, target: Path, change: Callable[[Any], None]) -> Path:
    """`target`: the tokenizer.json at `path` after `change` of its document."""
    document = load_json(path)
    change(document)
    target.write_text(json.dumps(document), encoding="utf-8")
    return target


def faulty_subject(path: Path, served: Path) -> Subject:
    """The subject of `path` whose backend serves another file: what a fault in its tables would look like."""
    subject = Subject(path)
    subject.__dict__["tokenizer"] = toktier.from_file(served, policy="experimental", tokenizer="fast_cpu")
    return subject


class Altered:
    """A tokenizer of which some calls, given by name, are answered by others."""

    def __init__(self, tokenizer: Any, **calls: Any) -> None:
        self._tokenizer = tokenizer
        self.__dict__.update(calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def answered_by_the_reference(subject: Subject) -> Any:
    """The subject's tokenizer, whose calls beside `encode` are answered by the reference without a word."""
    reference = toktier.from_file(subject.path, policy="reference")
    calls = ("count", "encode_batch", "decode", "decode_stream")
    return Altered(subject.tokenizer, **{name: getattr(reference, name) for name in calls})
