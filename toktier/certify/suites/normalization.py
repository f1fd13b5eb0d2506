"""The normalizer: every code point, every pair that composes, marks in every order, jamo, what never recomposes, and
what Replace, Prepend, Strip and Lowercase look at, with offsets.

Batched texts keep what they hold apart by SEPARATOR, which neither composes nor carries a mark of its own; the same
cases singly follow at the standard level. Not here: where a text may be cut beside a normalizer (`cuts`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import product
from typing import TYPE_CHECKING

from toktier.certify.levels import Level
from toktier.certify.suite import SuitePlan, TextSuite
from toktier.program import unicode
from toktier.program.layout import NormalizerOp
from toktier.program.normalizer import UNICODE_FORMS

if TYPE_CHECKING:
    from toktier.certify.subject import Subject
    from toktier.program.normalizer import NormalizerStep

SEPARATOR = "\n|"
JOINED = 24_000  # code points of a batched text
BLOCK = 200_000  # code points of a block, a text counted as sixteen more
SINGLES = {Level.QUICK: 1_000, Level.STANDARD: 150_000}  # of each kind; exhaustive takes all
MANY_MARKS = (30, 31, 32, 33, 34, 64, 129, 300)  # native/engine/unicode_form.cpp orders runs beyond 32 in another way
HANGUL = range(0xAC00, 0xD7A4)
CODE_POINTS = 0x110000 - 0x800
ONE_IN = 16  # at quick: of the code points beyond the first plane that no step looks at


class NormalizationSuite(TextSuite):
    name = "normalization"
    meaning = (
        "every code point, composing pair, decomposition and order of two marks, composition blocked and not, jamo, and"
        " the strings of Replace, Prepend, Strip and Lowercase at edges, through the whole pipeline with offsets"
    )
    version = 2

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        steps = subject.spec.normalizer
        if not steps:
            return SuitePlan(0, {}, "the tokenizer has no normalizer")
        facts: dict[str, int] = {}
        texts: list[str] = []
        for kind, cases in _kinds(steps, level, seed).items():
            facts[kind] = len(cases)
            texts += _joined(cases)
            if kind == "code_points":
                cases = _telling(steps, level, seed)
            singles = _sample(cases, SINGLES.get(level), f"{seed}:{kind}")
            facts[f"{kind}_singly"] = len(singles)
            texts += singles
        if facts["code_points"] < CODE_POINTS:
            facts["code_points_possible"] = CODE_POINTS
        blocks: list[tuple[int, int]] = []
        begin = size = 0
        for end, text in enumerate(texts, 1):
            size += len(text) + 16
            if size >= BLOCK or end == len(texts):
                blocks.append((begin, end))
                begin, size = end, 0
        return SuitePlan(len(blocks), facts, payload=(texts, blocks))

    def texts(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int) -> Iterable[str]:
        texts: list[str] = plan.payload[0]
        begin, end = plan.payload[1][block]
        return texts[begin:end]


def _kinds(steps: tuple[NormalizerStep, ...], level: Level, seed: int) -> dict[str, list[str]]:
    """Cases by kind, in one order."""
    rng = random.Random(seed)
    kinds = {"code_points": _code_points(steps, level)}
    forms = [UNICODE_FORMS[step.op] for step in steps if step.op in UNICODE_FORMS]
    if forms:
        tables = unicode.normalization(forms[0])
        canonical = unicode.normalization("NFC")
        kinds["composing_pairs"] = [chr(first) + chr(second) for first, second in canonical.compositions]
        kinds["decompositions"] = [
            text
            for cp, parts in tables.decompositions.items()
            for text in (_text(parts), chr(cp) + "\u0301", "a" + chr(cp), chr(cp) + chr(parts[-1]))
            if cp not in HANGUL
        ]
        kinds["mark_orders"] = list(_mark_orders(tables.ccc, canonical.compositions, rng))
        kinds["blocked_compositions"] = list(_blocked(tables.ccc, canonical.compositions, rng))
        kinds["jamo"] = list(_jamo(rng))
    literals = list(_literals(steps))
    if literals:
        kinds["literals"] = list(dict.fromkeys(literals))
    return {kind: cases for kind, cases in kinds.items() if cases}


def _code_points(steps: tuple[NormalizerStep, ...], level: Level) -> list[str]:
    known = _looked_at(steps) if level is Level.QUICK else set()
    return [
        chr(cp)
        for cp in range(0x110000)
        if not 0xD800 <= cp < 0xE000 and (level is not Level.QUICK or cp < 0x10000 or cp % ONE_IN == 0 or cp in known)
    ]


def _telling(steps: tuple[NormalizerStep, ...], level: Level, seed: int) -> list[str]:
    """The code points that some step looks at and as many others, each to be a text of its own."""
    if level is Level.EXHAUSTIVE:
        return _code_points(steps, level)
    known = _looked_at(steps)
    rng = random.Random(f"{seed}:others")
    others = {cp for cp in rng.sample(range(0x110000), len(known) + 1_000) if not 0xD800 <= cp < 0xE000}
    return [chr(cp) for cp in sorted(known | others)]


def _looked_at(steps: tuple[NormalizerStep, ...]) -> set[int]:
    known: set[int] = set()
    for step in steps:
        if step.op in UNICODE_FORMS:
            tables = unicode.normalization(UNICODE_FORMS[step.op])
            known |= {cp for cp in tables.decompositions if cp not in HANGUL} | tables.ccc.keys()
            known |= {cp for pair in tables.compositions for cp in pair if cp not in HANGUL}
        elif step.op is NormalizerOp.LOWERCASE:
            known |= unicode.lowercase().keys()
        elif step.op is NormalizerOp.STRIP:
            known |= {cp for low, high in unicode.white_space() for cp in range(low, high + 1)}
        else:
            known |= set(map(ord, step.text + step.replacement))
    return known


def _text(code_points: Iterable[int]) -> str:
    return "".join(map(chr, code_points))


def _by_class(ccc: dict[int, int]) -> dict[int, list[int]]:
    classes: dict[int, list[int]] = {}
    for cp, number in ccc.items():
        classes.setdefault(number, []).append(cp)
    return dict(sorted(classes.items()))


def _mark_orders(ccc: dict[int, int], compositions: dict[tuple[int, int], int], rng: random.Random) -> Iterator[str]:
    """Marks of each ordered pair of combining classes behind a base that composes with one of them, and behind one that
    does not; three in a row."""
    classes = _by_class(ccc)
    bases: dict[int, list[int]] = {}
    for first, second in compositions:
        if ccc.get(first, 0) == 0 and second in ccc:
            bases.setdefault(second, []).append(first)
    composing = {number: [cp for cp in marks if cp in bases] or marks for number, marks in classes.items()}
    for one, two in product(classes, repeat=2):
        for pair in ((classes[one][0], classes[two][-1]), (rng.choice(composing[one]), rng.choice(composing[two]))):
            base = rng.choice(bases.get(pair[0]) or bases.get(pair[1]) or [0x61])
            third = rng.choice(classes[rng.choice(list(classes))])
            yield chr(base) + _text(pair)
            yield "q" + _text(pair)
            yield chr(base) + _text(pair) + chr(third)
    everything = [cp for marks in classes.values() for cp in marks]
    for length in MANY_MARKS:
        yield _text([0x61, *rng.choices(everything, k=length)])
    for number, marks in classes.items():  # equal classes keep their order
        for mark in marks:
            yield "e" + chr(mark) + chr(rng.choice(marks)) + chr(rng.choice(classes[rng.choice(list(classes))]))
            yield chr(mark)  # a text that begins with a mark
        yield _text([0x61, *rng.sample(marks, min(len(marks), 40))] * 2) + str(number)


def _blocked(ccc: dict[int, int], compositions: dict[tuple[int, int], int], rng: random.Random) -> Iterator[str]:
    """Each composing pair with something between: a mark of a lower, the same or a higher class, a starter."""
    marks = [(number, cp) for cp, number in ccc.items()]
    for (first, second), whole in compositions.items():
        if whole in HANGUL:
            continue
        number = ccc.get(second, 0)
        for between in (
            rng.choice([cp for other, cp in marks if other < number] or [0x334]),
            rng.choice([cp for other, cp in marks if other == number] or [0x301]),
            rng.choice([cp for other, cp in marks if other > number] or [0x345]),
            0x61,
            0x200D,
        ):
            yield _text((first, between, second))
        yield _text((whole, second))
        yield _text((first, second, second, 0x315))


def _jamo(rng: random.Random) -> Iterator[str]:
    """Syllables in parts and whole, with what follows one and what does not, at the ends of the arithmetic."""
    leads, vowels, trails = (0x10FF, 0x1100, 0x1112, 0x1113), (0x1160, 0x1161, 0x1175, 0x1176), (0x11A7, 0x11A8, 0x11C2)
    for lead, vowel, trail in product(leads, vowels, (*trails, 0x11C3)):
        yield _text((lead, vowel, trail))
        yield _text((lead, vowel, 0x301, trail))
        yield _text((lead, 0x301, vowel, trail))
    for syllable in (*rng.sample(HANGUL, 300), HANGUL[0], HANGUL[-1]):
        for trail in (*trails, 0x11C3, 0x1161, 0x301, 0x3099):
            yield _text((syllable, trail))
    for cp in (*range(0x1100, 0x1200), *range(0x3130, 0x3190), *range(0xFFA0, 0xFFDD)):
        yield _text((0x1100, cp))
        yield _text((0xAC00, cp, 0x11A8))


def _literals(steps: tuple[NormalizerStep, ...]) -> Iterator[str]:
    """What the other steps look at: at the start, at the end, alone, repeated, cut short, beside each other."""
    for step in steps:
        if step.op is NormalizerOp.LOWERCASE:
            for cp in unicode.lowercase():
                yield chr(cp)
                yield f"a{chr(cp)}\u0301{chr(cp)}Σ"
        elif step.op is NormalizerOp.STRIP:
            for low, high in unicode.white_space():
                for blank in {chr(low), chr(high)}:
                    yield from _around(blank)
                    yield blank * 3 + "a" + blank * 2 + "b" + blank * 5
                    yield blank + " \t" + blank
        elif step.op in (NormalizerOp.REPLACE, NormalizerOp.PREPEND):
            for text in filter(None, dict.fromkeys((step.text, step.replacement))):
                yield from _around(text)
                for size in range(1, len(text)):
                    yield from _around(text[:size])
                    yield text[:size] + text
                    yield text + text[size:]
                    yield "x" + text[size:] + "y" + text[:size]
            yield step.text + step.replacement
            yield step.replacement + step.text
            yield from ("", " ", "\n")


def _around(text: str) -> Iterator[str]:
    for neighbour in ("", "a", "Ä", "中", " ", "\n", "\u0301", "▁", "😀", "0"):
        yield text + neighbour
        yield neighbour + text
        yield neighbour + text * 2 + neighbour
        yield neighbour + text * 5 + neighbour + text
    yield text * 40


def _joined(cases: list[str]) -> Iterator[str]:
    """Cases in long texts, in order, held apart by SEPARATOR."""
    begin = size = 0
    for end, case in enumerate(cases, 1):
        size += len(case) + len(SEPARATOR)
        if size >= JOINED or end == len(cases):
            yield SEPARATOR.join(cases[begin:end])
            begin, size = end, 0


def _sample(cases: list[str], bound: int | None, seed: str) -> list[str]:
    if bound is None or len(cases) <= bound:
        return cases
    return [cases[place] for place in sorted(random.Random(seed).sample(range(len(cases)), bound))]
