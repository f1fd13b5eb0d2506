"""Every code point that a text can hold (1,112,064), through contexts that tell its class.

Full encodings: each code point once, in the context that tells its class from most others, many to a document. Between
two of them stand characters at which the tables prove cuts on either side, so that each stands as if alone; where no
such characters exist they stand side by side, and the facts say in how many contexts. One context cannot tell a class
from all others, and ids hide boundaries that no merge crosses: so the same again by pieces, in rounds, each code point
in as many contexts as tell its class from every other one. Standard and exhaustive add every context of
`separating_contexts`, each code point in a text of its own, by pieces: there the class of a code point can be read off
whatever the tables say of it. Not here: strings of classes (`automaton`, `classes`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toktier.certify.boundaries import boundary_facts, check_boundaries, why_not
from toktier.certify.levels import Level
from toktier.certify.suite import Suite, SuitePlan
from toktier.program.coverage import separating_contexts, to_text
from toktier.program.cuts import static_cuts
from toktier.program.interpret import run_two_pass

if TYPE_CHECKING:
    from toktier.certify.subject import Subject
    from toktier.certify.tally import Tally
    from toktier.program.boundary import BoundaryTables

SURROGATES = range(0xD800, 0xE000)
BLOCK = 0x8000  # code points: a third of a second
DOCUMENT = 256  # code points shown in one document
_SEPARATING = ("\n", " ", "a")  # without a pre-tokenizer: what stands before, between and behind

Context = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class _Plan:
    documents: int  # blocks of documents; those behind them are of single contexts
    contexts: list[tuple[str, str]]
    around: list[tuple[str, str]]  # by class: what stands before and behind in documents
    rounds: list[list[tuple[str, str] | None]]  # the same of documents compared by pieces; None: not in this round
    ranges: list[tuple[int, int]]  # blocks of code points


class CodePointsSuite(Suite):
    name = "code-points"
    meaning = (
        "all 1,112,064 code points that a text can hold, each in the context that tells its class from most others, by "
        "full encodings, and by pieces in contexts that tell it from every other; above quick also each alone in every "
        "context that tells classes apart, by pieces"
    )
    version = 2

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        ranges = [
            (low, min(low + BLOCK, stop))
            for start, stop in ((0, SURROGATES.start), (SURROGATES.stop, 0x110000))
            for low in range(start, stop, BLOCK)
        ]
        facts: dict[str, Any] = {"code_points": sum(high - low for low, high in ranges)}
        tables, why = subject.boundary, why_not(subject)
        if tables is None or why is not None:
            facts["contexts"] = 0
            if why is not None:
                facts["pieces_not_compared"] = why
            around = [("".join(_SEPARATING[:2]), _SEPARATING[2])]
            return SuitePlan(len(ranges), facts, None, _Plan(len(ranges), [], around, [], ranges))
        contexts = separating_contexts(tables)
        chosen, told = _best_contexts(tables, contexts)
        around, alone = _in_documents(tables, chosen)
        rounds = [_of_round(tables, chosen, needed) for needed in _rounds(tables, contexts)]
        texts = [(_text(tables, before), _text(tables, behind)) for before, behind in contexts]
        if level is Level.QUICK:
            texts = []
        facts |= boundary_facts(subject) | {
            "contexts": len(contexts),
            "contexts_alone": len(texts),
            "class_pairs": tables.n_class * (tables.n_class - 1),
            "class_pairs_told_in_documents": told,
            "classes_side_by_side": alone,
            "rounds_by_pieces": len(rounds),
        }
        blocks = len(ranges) * (1 + len(texts))
        return SuitePlan(blocks, facts, None, _Plan(len(ranges), texts, around, rounds, ranges))

    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        kept = plan.payload
        assert isinstance(kept, _Plan)
        low, high = kept.ranges[block % len(kept.ranges)]
        if block < kept.documents:
            for document in _documents(subject, kept, low, high):
                tally.text(document)
            for around in kept.rounds:
                check_boundaries(tally, _documents(subject, kept, low, high, around), both=False)
            return
        before, behind = kept.contexts[block // len(kept.ranges) - 1]
        check_boundaries(tally, (f"{before}{chr(cp)}{behind}" for cp in range(low, high)), both=False)


def _text(tables: BoundaryTables, classes: bytes) -> str:
    return to_text(classes, tables.representatives)


def _best_contexts(tables: BoundaryTables, contexts: list[Context]) -> tuple[list[Context], int]:
    """By class, the context that tells it from most others; and how many ordered pairs of classes that tells."""
    n = tables.n_class
    values = [[run_two_pass(tables, before + bytes((c,)) + behind) for c in range(n)] for before, behind in contexts]
    chosen, told = [], 0
    for c in range(n):
        counts = [sum(other != column[c] for other in column) for column in values]
        best = max(range(len(contexts)), key=lambda k: counts[k], default=0)
        chosen.append(contexts[best] if contexts else (b"", b""))
        told += counts[best] if counts else 0
    return chosen, told


def _rounds(tables: BoundaryTables, contexts: list[Context]) -> list[list[Context | None]]:
    """By round and class, a context; those of all rounds tell the class from every other one."""
    n = tables.n_class
    values = [[run_two_pass(tables, before + bytes((c,)) + behind) for c in range(n)] for before, behind in contexts]
    needed: list[list[Context]] = []
    for c in range(n):
        left, mine = {other for other in range(n) if other != c}, list[Context]()
        while left:
            best = max(range(len(contexts)), key=lambda k: sum(values[k][other] != values[k][c] for other in left))
            left = {other for other in left if values[best][other] == values[best][c]}
            mine.append(contexts[best])
        needed.append(mine)
    count = max(map(len, needed))
    return [[mine[k] if k < len(mine) else None for mine in needed] for k in range(count)]


def _of_round(
    tables: BoundaryTables, chosen: list[Context], needed: list[Context | None]
) -> list[tuple[str, str] | None]:
    """What stands around the classes of a round in its documents."""
    around, _ = _in_documents(tables, [some or other for some, other in zip(needed, chosen, strict=True)])
    return [shown if some is not None else None for shown, some in zip(around, needed, strict=True)]


def _in_documents(tables: BoundaryTables, chosen: list[Context]) -> tuple[list[tuple[str, str]], int]:
    """By class, the context with separating characters before it: cuts between any shown one before, the separator and
    itself. And for how many classes there is no such separator."""
    n, pair = tables.n_class, static_cuts(tables).pair
    first = [(before or bytes((c,)))[0] for c, (before, _) in enumerate(chosen)]
    last = {(behind or bytes((c,)))[-1] for c, (_, behind) in enumerate(chosen)}

    def cut(a: int, b: int) -> bool:
        return pair[a * n + b] == 1

    separators = sorted(
        (bytes(text) for length in (1, 2, 3) for text in itertools.product(range(n), repeat=length)),
        key=lambda text: (len(text), text),
    )
    separators = [text for text in separators if all(cut(a, text[0]) for a in last)]
    around, alone = [], 0
    for c, (before, behind) in enumerate(chosen):
        separator = next((text for text in separators if cut(text[-1], first[c])), None)
        alone += separator is None
        around.append((_text(tables, (separator or b"") + before), _text(tables, behind)))
    return around, alone


def _documents(
    subject: Subject, plan: _Plan, low: int, high: int, around: Sequence[tuple[str, str] | None] | None = None
) -> Iterator[str]:
    """The code points of a block, DOCUMENT to a text; those of a round where `around` is given."""
    shown = _shown(subject.boundary, plan.around if around is None else around, low, high)
    for begin in range(low, high, DOCUMENT):
        parts = zip(range(begin, min(begin + DOCUMENT, high)), shown, strict=False)
        text = "".join([f"{each[0]}{chr(cp)}{each[1]}" for cp, each in parts if each is not None])
        if text:
            yield text


def _shown(
    tables: BoundaryTables | None, around: Sequence[tuple[str, str] | None], low: int, high: int
) -> Iterator[tuple[str, str] | None]:
    """What stands around each code point, in order."""
    if tables is None or len(around) == 1:
        yield from itertools.repeat(around[0], high - low)
        return
    for first, last, c in tables.class_ranges:
        count = min(last + 1, high) - max(first, low)
        if count > 0:
            yield from itertools.repeat(around[c], count)
