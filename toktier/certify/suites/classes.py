"""All class strings up to a length: what the pre-tokenizer makes of them, piece by piece.

No assumption about how many states the reference has, only about length. Each string is one call of the reference's
pre-tokenizer by itself (5 us), never many strings joined in one text. At position p of a string its class is shown by
member p mod 4 (`boundaries.class_choices`), so that members mix. Not here: full encodings (`automaton`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from toktier.certify.boundaries import boundary_facts, check_boundaries, class_choices, why_not
from toktier.certify.levels import Level
from toktier.certify.suite import Suite, SuitePlan

if TYPE_CHECKING:
    from toktier.certify.subject import Subject
    from toktier.certify.tally import Tally

LENGTH = {Level.QUICK: 4, Level.STANDARD: 6, Level.EXHAUSTIVE: 7}
MAX_STRINGS = {Level.QUICK: 200_000, Level.STANDARD: 2_000_000, Level.EXHAUSTIVE: 25_000_000}
BLOCK = 50_000  # strings at most: about half a second


class ClassesSuite(Suite):
    name = "classes"
    of_tables = True
    meaning = (
        "all strings of character classes up to length 4, 6 or 7 by level (shorter where there would be more than "
        "200,000, 2 million or 25 million of them), one member of each class a position, by pieces"
    )

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        tables, why = subject.boundary, why_not(subject)
        if tables is None or why is not None:
            return SuitePlan(0, why=why)
        n, asked = tables.n_class, LENGTH[level]
        counts = list(itertools.accumulate(n**length for length in range(1, asked + 1)))
        length = sum(count <= MAX_STRINGS[level] for count in counts)
        blocks = [
            (total, head)
            for total in range(1, length + 1)
            for head in itertools.product(range(n), repeat=_head_length(n, total))
        ]
        facts = {**boundary_facts(subject), "length": length, "strings": counts[length - 1] if length else 0}
        if length < asked:
            facts |= {"length_asked": asked, "strings_not_run": counts[-1] - (counts[length - 1] if length else 0)}
        why = None if blocks else f"{n} classes: already the strings of length 1 are over the limit"
        return SuitePlan(len(blocks), facts, why, (blocks, class_choices(tables, f"{seed}")))

    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        blocks, choices = plan.payload
        length, head = blocks[block]
        check_boundaries(tally, _texts(length, head, choices))


def _head_length(n: int, length: int) -> int:
    """How many classes a block fixes, so that it has at most BLOCK strings."""
    head = 0
    while n ** (length - head) > BLOCK:
        head += 1
    return head


def _texts(length: int, head: tuple[int, ...], choices: list[list[str]]) -> Iterator[str]:
    kinds = len(choices[0])
    begin = "".join([choices[c][p % kinds] for p, c in enumerate(head)])
    columns = [[members[p % kinds] for members in choices] for p in range(len(head), length)]
    return (begin + "".join(rest) for rest in itertools.product(*columns))
