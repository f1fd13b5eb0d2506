"""Cuts of texts, each kind in every context that the tables name: under the reference both sides make the whole.

A check is one cut that the engine names: the reference's ids of the left part and of the right part, one after the
other, are those of the whole text. Around the two, three characters that decide stand hostile others: texts that bring
the pre-tokenizer into other states, white space, marks, parts of added tokens. A position that the engine does not name
needs no check. And the proofs run again: the contexts of classes are exactly those of the program's sections, and every
piece start is like the start of a text (`renewal_fault`).

Not here: offsets, and parts without prefix (tests/laws); what cuts are for.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from toktier.certify.boundaries import class_choices
from toktier.certify.levels import Level
from toktier.certify.suite import Suite, SuitePlan
from toktier.program.coverage import to_text
from toktier.program.cuts import Cuts, renewal_fault, static_cuts
from toktier.program.equivalence import left_access, right_access
from toktier.program.layout import Conf, CutKind, Join, NormalizerOp
from toktier.program.normalizer import UNICODE_FORMS
from toktier.program.unicode import normalization

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from toktier.certify.subject import Subject
    from toktier.certify.tally import Tally

BLOCK = 4_000  # cuts, three calls of the reference each: about a fifth of a second
SURROUNDINGS = {Level.QUICK: 2, Level.STANDARD: 8, Level.EXHAUSTIVE: 80}  # of each context
MOST_CONTEXTS = {Level.QUICK: 40_000, Level.STANDARD: 100_000, Level.EXHAUSTIVE: 1_000_000}  # of a kind
CONTEXTS = {"pair": (1, 1), "left_triple": (2, 1), "right_triple": (1, 2), "inner": (1, 1)}  # of `Cuts`: classes
MOST_TOKENS = 256  # added tokens whose insides are tried
# fmt: off
HOSTILE = (
    "", " ", "  ", "\n", "\r\n", "\t ", "a", "Z", "don", "'s", "'", "1", "12", "1234", ".", "...", "é", "e\u0301",
    "\u0301", "\u0323\u0301", "中", "한", "\u1112\u1161", "\u11ab", "😀", "\u200d", "\u00a0", "▁", "_", "<", ">", "<|",
    "|>", "\x00", "ſ",
)
# fmt: on


@dataclass(frozen=True, slots=True)
class _Bar:
    """The text is `left` and `right`, the bar between them. `context`: which one of the tables it shows, if any.
    `continued`: the right part is encoded without prefix."""

    left: str
    right: str
    context: tuple[str, int] | None = None
    continued: bool = False


@dataclass(frozen=True, slots=True)
class _Bars:
    bars: list[_Bar]
    cuts: Cuts | None


class CutsSuite(Suite):
    name = "cuts"
    of_tables = True
    meaning = (
        "every context of every kind of cut: the reference's ids of both sides are those of the whole, in hostile "
        "surroundings; the contexts of classes proved again, and that every piece start is like the start of a text"
    )

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        rng = random.Random(f"cuts {seed}")
        cuts = None if subject.boundary is None else static_cuts(subject.boundary)
        facts: dict[str, Any] = {}
        candidates: dict[str, Iterable[_Bar]] = {
            "classes": () if cuts is None else _class_bars(subject, cuts, level, rng, facts),
            "junctions": _junction_bars(subject, level, rng),
            "normalizer": _normalizer_bars(subject, level, rng),
            "added_tokens": _token_bars(subject, level, rng),
        }
        kinds: Counter[str] = Counter()
        bars: dict[tuple[str, str], _Bar] = {}
        shown: set[tuple[str, int]] = set()
        for source, found in candidates.items():
            tried = 0
            for bar in found:
                tried += 1
                kind, continued = _kind(subject, bar)
                if kind is CutKind.NONE:
                    continue
                if bar.context is not None:
                    shown.add(bar.context)
                if (bar.left, bar.right) not in bars:
                    bars[bar.left, bar.right] = replace(bar, continued=continued)
                    kinds[kind.name.lower() + ("_continued" if continued else "")] += 1
            facts[f"{source}_tried"] = tried
        names = Counter(name for name, _ in shown)
        facts |= {f"contexts_{name}_shown": names[name] for name in CONTEXTS if cuts is not None}
        facts |= {f"cuts_{name}": kinds[name] for name in sorted(kinds)} | {"cuts": len(bars)}
        return SuitePlan(1 + -(-len(bars) // BLOCK), facts, None, _Bars(list(bars.values()), cuts))

    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        kept = plan.payload
        assert isinstance(kept, _Bars)
        if block == 0:
            _check_proofs(subject, kept.cuts, tally)
            return
        reference, unprefixed = subject.reference, unprefixed_reference(subject) if prefixes(subject) else None
        for bar in kept.bars[(block - 1) * BLOCK : block * BLOCK]:
            behind = unprefixed if bar.continued and unprefixed is not None else reference
            whole = reference.encode(bar.left + bar.right, add_special_tokens=False).ids
            first = reference.encode(bar.left, add_special_tokens=False).ids
            second = behind.encode(bar.right, add_special_tokens=False).ids
            tally.check("cut", f"{bar.left}\0{bar.right}", first + second, whole)


def _kind(subject: Subject, bar: _Bar) -> tuple[CutKind, bool]:
    """What the engine says of the bar; where every part gets a prefix, of parts that continue. There the next added
    token ends what is promised, so texts with one are left out."""
    kind = cut_between(subject, bar.left, bar.right, False)
    if kind is not CutKind.NONE or not prefixes(subject):
        return kind, False
    contents = (placed.matched for placed in subject.spec.added_tokens)
    if any(content in bar.left + bar.right or content in f" {bar.right}" for content in contents):
        return CutKind.NONE, False
    return cut_between(subject, bar.left, bar.right, True), True


def prefixes(subject: Subject) -> bool:
    """Whether a text begins with something put in front of it."""
    steps = (step.op for step in subject.spec.normalizer)
    return subject.spec.pre_tokenizer.prefix_space or NormalizerOp.PREPEND in steps


@lru_cache(maxsize=2)
def unprefixed_reference(subject: Subject) -> Tokenizer:
    """The reference without Prepend and prefix space."""
    from tokenizers import Tokenizer

    document = json.loads(subject.data)
    for name in ("normalizer", "pre_tokenizer"):
        document[name] = _without_prefix(document[name])
    return Tokenizer.from_str(json.dumps(document))


def _without_prefix(component: Any) -> Any:
    if component is None or component["type"] == "Prepend":
        return None
    for inner in ("normalizers", "pretokenizers"):
        if inner in component:
            parts = [part for part in map(_without_prefix, component[inner]) if part is not None]
            return {**component, inner: parts}
    return {**component, "add_prefix_space": False} if component["type"] == "ByteLevel" else component


def cut_between(subject: Subject, left: str, right: str, continued: bool) -> CutKind:
    """What the engine says of the bar."""
    positions, kinds = subject.native.cuts(left + right, continued)
    at = len(left.encode())
    return CutKind(kinds[positions.index(at)]) if at in positions else CutKind.NONE


def _check_proofs(subject: Subject, cuts: Cuts | None, tally: Tally) -> None:
    """The sections as they would be made now, and renewal. They come from the engine's program, not from a cache."""
    section = subject.program_file.section
    if cuts is None or subject.boundary is None:
        tally.check("proof", "cuts of classes", sum(len(section(tag)) for tag in ("CUT2", "CUT3", "CUTI")), 0)
        return
    triples = cuts.left_triple + cuts.right_triple
    for tag, expected in (("CUT2", cuts.pair), ("CUT3", triples), ("CUTI", cuts.inner)):
        found = bytes(section(tag))
        differing = [i for i, (a, b) in enumerate(itertools.zip_longest(found, expected)) if a != b]
        tally.check("proof", f"{tag} is what the tables give", differing[:20] or _set(found), _set(expected))
    fault = renewal_fault(subject.boundary)
    tally.check("proof", "every piece start is like the start of a text", fault and list(map(list, fault)), None)


def _set(table: bytes) -> str:
    return f"{sum(table)} of {len(table)}"


# Contexts of classes


def _class_bars(
    subject: Subject, cuts: Cuts, level: Level, rng: random.Random, facts: dict[str, Any]
) -> Iterator[_Bar]:
    """Each pair, triple and inner context, behind a text for some left state and before one for some right state."""
    tables = subject.boundary
    assert tables is not None
    n = tables.n_class
    choices = class_choices(tables, f"{rng.random()}")
    befores = [to_text(text, tables.representatives) for text in left_access(tables).values()]
    behinds = [to_text(text, tables.representatives) for text in right_access(tables).values()]
    before, behind = itertools.cycle(befores), itertools.cycle(behinds)
    for name, (left_size, right_size) in CONTEXTS.items():
        table: bytes = getattr(cuts, name)
        contexts = [context for context, value in enumerate(table) if value]
        facts[f"contexts_{name}"] = len(contexts)
        limit = MOST_CONTEXTS[level]
        if len(contexts) > limit:
            facts[f"contexts_{name}_not_tried"] = len(contexts) - limit
            contexts = sorted(rng.sample(contexts, limit))
        times = SURROUNDINGS[level] * (8 if left_size + right_size == 2 else 1)
        for context in contexts:
            classes = _digits(context, n, left_size + right_size)
            for _ in range(times):
                text = "".join([rng.choice(choices[c]) for c in classes])
                around = rng.choice(HOSTILE)
                left, right = around + next(before) + text[:left_size], text[left_size:] + next(behind) + around
                yield _Bar(left, right, (name, context))


def _digits(value: int, base: int, count: int) -> list[int]:
    digits = []
    for _ in range(count):
        value, digit = divmod(value, base)
        digits.append(digit)
    return digits[::-1]


# Pairs of a vocabulary


def _junction_bars(subject: Subject, level: Level, rng: random.Random) -> Iterator[_Bar]:
    """Every byte that a character may end with beside every byte that one may begin with, or pairs of symbols: what no
    merge joins, inside what may be one piece."""
    join = _conf(subject, Conf.JOIN_KIND)
    if join == Join.BYTES:
        ends, begins = _by_last_byte(), _by_first_byte()
        pairs = [(a, b) for a in ends for b in begins]
    elif join == Join.SYMBOLS:
        symbols = _symbols(subject)
        pairs = [(rng.choice(symbols), rng.choice(symbols)) for _ in range(MOST_CONTEXTS[level])] if symbols else []
    else:
        return
    if len(pairs) > MOST_CONTEXTS[level]:
        pairs = rng.sample(pairs, MOST_CONTEXTS[level])
    fillers = ("", "a", "th", "中", "é", "..", " ")
    for a, b in pairs:
        yield _Bar(rng.choice(fillers) + a, b + rng.choice(fillers))
        yield _Bar(a + a, b + b)


def _conf(subject: Subject, field: Conf) -> int:
    return int.from_bytes(subject.program_file.section("CONF")[4 * field : 4 * field + 4], "little")


def _by_last_byte() -> list[str]:
    """A character, letters where there are such, for each last byte of valid UTF-8."""
    found = {chr(cp).encode()[-1]: chr(cp) for cp in (*range(0x4E00, 0x4E80), *range(0x100, 0x180), *range(0x80))}
    return [found[byte] for byte in sorted(found)] + [chr(cp) for cp in range(0x4E00, 0x4E40)]


def _by_first_byte() -> list[str]:
    found: dict[int, str] = {}
    blocks = (range(0x80), range(0xC0, 0x800), range(0x900, 0x10000, 0x40), range(0x10000, 0x110000, 0x1000))
    for cp in itertools.chain(*blocks):
        if not 0xD800 <= cp <= 0xDFFF:
            found.setdefault(chr(cp).encode()[0], chr(cp))
    return [found[byte] for byte in sorted(found)]


def _symbols(subject: Subject) -> list[str]:
    """Characters that are tokens."""
    starts = memoryview(subject.program_file.section("RAWO")).cast("I")
    raw = subject.program_file.section("RAWB")
    texts = (bytes(raw[a:b]).decode(errors="ignore") for a, b in itertools.pairwise(starts) if b - a <= 4)
    return sorted({text for text in texts if len(text) == 1})


# What guards are against


def _normalizer_bars(subject: Subject, level: Level, rng: random.Random) -> Iterator[_Bar]:
    """Bars in short texts of what the normalizer changes, combines or moves, and of what it leaves alone."""
    steps = subject.spec.normalizer
    if not steps:
        return
    pool = list(HOSTILE[1:])
    for step in steps:
        if step.op in UNICODE_FORMS:
            tables = normalization(UNICODE_FORMS[step.op])
            seconds = sorted({second for _, second in tables.compositions} | set(tables.ccc))
            firsts = sorted({first for first, _ in tables.compositions})
            for candidates in (seconds, firsts, sorted(tables.decompositions)):
                pool += map(chr, rng.sample(candidates, min(len(candidates), 400)))
        elif step.op in (NormalizerOp.REPLACE, NormalizerOp.PREPEND):
            pool += [step.text, step.text[:1], step.text[-1:], step.replacement] * 20
    for _ in range(min(MOST_CONTEXTS[level], 6_000 * SURROUNDINGS[level])):
        parts = [rng.choice((rng.choice(pool), rng.choice("abe1 .中"))) for _ in range(rng.randint(2, 6))]
        bar = rng.randint(1, len(parts) - 1)
        yield _Bar("".join(parts[:bar]), "".join(parts[bar:]))


def _token_bars(subject: Subject, level: Level, rng: random.Random) -> Iterator[_Bar]:
    """Bars before, inside and behind added tokens, and between parts of two."""
    contents = [placed.token.content for placed in subject.spec.added_tokens]
    if len(contents) > MOST_TOKENS:
        contents = rng.sample(contents, MOST_TOKENS)
    for content in contents:
        for neighbour in HOSTILE[1:]:  # what flags look at
            yield _Bar(rng.choice(HOSTILE) + content, neighbour)
            yield _Bar(neighbour, content + rng.choice(HOSTILE))
        for k in range(len(content) + 1):
            for _ in range(SURROUNDINGS[level]):
                before, behind = rng.choice(HOSTILE), rng.choice(HOSTILE)
                other = rng.choice(contents)
                yield _Bar(before + content[:k], content[k:] + behind)
                yield _Bar(before + " " + content[:k], other[rng.randint(0, len(other)) :] + " " + behind)
                yield _Bar("x " + content + before, behind + "y " + other)
