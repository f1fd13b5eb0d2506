"""What a suite is: a stated meaning, a plan of numbered blocks, and the checks of each block.

Blocks are what shards, checkpoints and workers divide: block k of a suite is the same checks in every process, for the
same subject, level and seed, whatever ran before. A block takes a tenth of a second to a few seconds. Coverage figures
that generation finds (tokens produced, rules proven dead) are facts of the plan, so they are part of the evidence.

Not here: how checks are counted (`tally`), what runs blocks (`runner`), the suites themselves (`suites/`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from toktier.certify.levels import Level

if TYPE_CHECKING:
    from toktier.certify.subject import Subject
    from toktier.certify.tally import Tally


@dataclass(frozen=True, slots=True)
class SuitePlan:
    """`blocks`: how many there are, 0 where the suite has nothing to say of this subject, and `why` says so. `facts`:
    coverage figures, integers and strings only, deterministic. `payload`: what the process that planned may keep for
    running blocks; it is never written anywhere."""

    blocks: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    why: str | None = None
    payload: Any = None


class Suite(ABC):
    """One question about a subject. Stateless; instances are made once, in `suites.SUITES`.

    `version` grows when the blocks of an unchanged subject change, because counts and digests then do. `of_tables`: it
    asks what the compiler made, and encodes nothing by the backend under test.
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    version: ClassVar[int] = 1
    of_tables: ClassVar[bool] = False

    @abstractmethod
    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        """Deterministic: the same plan in every process."""

    @abstractmethod
    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        """Makes the checks of one block, in one order."""


class TextSuite(Suite):
    """A suite whose checks are texts, encoded by the backend and by the reference."""

    @abstractmethod
    def texts(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int) -> Iterable[str]:
        """The texts of one block, in one order."""

    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        for text in self.texts(subject, level, seed, plan, block):
            tally.text(text)


def blocks_of(texts: list[str], budget: int) -> list[tuple[int, int]]:
    """Ranges [begin, end) of consecutive texts of about `budget` code points each: blocks of a listed suite."""
    ranges: list[tuple[int, int]] = []
    begin = size = 0
    for index, text in enumerate(texts):
        size += len(text) + 16  # a call costs about as much as sixteen characters
        if size >= budget:
            ranges.append((begin, index + 1))
            begin, size = index + 1, 0
    if begin < len(texts):
        ranges.append((begin, len(texts)))
    return ranges
