"""Added tokens: each alone, beside each other, overlapping, cut short, in other cases, in every context, and as plain
text where special tokens are to be that.

Where a kind has more texts than the level takes, every token gets its share, chosen by the seed, and the facts name
both numbers. Not here: added tokens in long texts (`fuzz`, `corpus`), cuts beside them (`cuts`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from toktier.certify.levels import Level
from toktier.certify.representatives import NEIGHBOURS, class_members
from toktier.certify.suite import Suite, SuitePlan, blocks_of
from toktier.program import unicode
from toktier.program.layout import NormalizerOp
from toktier.program.normalizer import UNICODE_FORMS, NormalizerStep, normalize

if TYPE_CHECKING:
    from toktier.certify.subject import Subject
    from toktier.certify.tally import Tally
    from toktier.program.added_tokens import PlacedToken

# Texts of each kind, in all; a token gets at least LEAST of them.
BUDGET = {Level.QUICK: 10_000, Level.STANDARD: 300_000, Level.EXHAUSTIVE: 1_500_000}
LEAST = {Level.QUICK: 1, Level.STANDARD: 8, Level.EXHAUSTIVE: 64}
NEARLY_WHITE = ("\r\n", "\x1c", "\u180e", "\u200b", "\u2060", "\ufeff", "▁")
RUNS = (1, 2, 3, 7)
PLAIN_AT_QUICK = frozenset(("alone", "adjacent", "overlapping", "white_space"))
_DECOMPOSE = (NormalizerStep(NormalizerOp.NFD, ""),)
DOCUMENT = 256  # code points shown in one text
BLOCK = 150_000  # code points, a call counted as sixteen


@dataclass(frozen=True)
class _Payload:
    texts: list[str]
    blocks: list[tuple[int, int, bool]]  # [begin, end) of texts, and whether plain mode is compared too


class AddedSuite(Suite):
    name = "added"
    meaning = (
        "every added token alone, adjacent, overlapping, cut short, in other cases, among runs of white space and in"
        " each context of character classes, its flags heeded, and as ordinary text in plain mode"
    )
    version = 2

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        tokens = subject.spec.added_tokens
        if not tokens:
            return SuitePlan(0, {"tokens": 0}, "the tokenizer has no added tokens")
        facts: dict[str, int] = {"tokens": len(tokens)}
        for flag in ("single_word", "lstrip", "rstrip", "normalized", "special"):
            facts[flag] = sum(getattr(placed.token, flag) for placed in tokens)
        texts: list[str] = []
        blocks: list[tuple[int, int, bool]] = []
        for kind, generate in _kinds(subject, seed).items():
            chosen: dict[str, None] = {}
            families = [generate(index) for index in range(len(tokens))]
            facts[kind], facts[f"{kind}_possible"] = 0, sum(map(len, families))
            share = facts[f"{kind}_possible"]
            if share > BUDGET[level]:
                share = max(LEAST[level], BUDGET[level] // sum(map(bool, families)))
            for index, family in enumerate(families):
                places: Sequence[int] = range(len(family))
                if len(family) > share:
                    places = sorted(random.Random(f"{seed}:{kind}:{index}").sample(places, share))
                facts[kind] += len(places)
                chosen.update((family[place], None) for place in places)
            plain = facts["special"] > 0 and (level is not Level.QUICK or kind in PLAIN_AT_QUICK)
            kept = list(chosen)  # tokens share some of their texts
            blocks += [(len(texts) + begin, len(texts) + end, plain) for begin, end in blocks_of(kept, BLOCK)]
            texts += kept
        facts["texts"] = len(texts)
        return SuitePlan(len(blocks), facts, payload=_Payload(texts, blocks))

    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        payload: _Payload = plan.payload
        begin, end, plain = payload.blocks[block]
        for text in payload.texts[begin:end]:
            tally.text(text, plain=plain)


@dataclass(frozen=True)
class _Lazy(Sequence[str]):
    """Texts that are too many to be laid out: `size` of them, each made by its number."""

    size: int
    make: Callable[[int], str]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, place: Any) -> Any:
        return self.make(place)


def _kinds(subject: Subject, seed: int) -> dict[str, Callable[[int], Sequence[str]]]:
    """Texts of each kind, by the index of a token."""
    placed = subject.spec.added_tokens
    contents = [token.token.content for token in placed]
    neighbours = ["", *dict.fromkeys((*class_members(subject.boundary, str(seed), 1), *NEIGHBOURS))]
    prefixes: dict[str, list[int]] = {}
    for index, content in enumerate(contents):
        for size in range(1, len(content)):
            prefixes.setdefault(content[:size], []).append(index)

    first_word = next((index for index, each in enumerate(placed) if each.token.single_word), None)

    def adjacent(index: int) -> Sequence[str]:
        content = contents[index]
        return _Lazy(2 * len(contents), lambda place: content + " " * (place % 2) + contents[place // 2])

    def overlapping(index: int) -> Iterator[str]:
        content = contents[index]
        for size in range(1, len(content)):
            for other in prefixes.get(content[-size:], ()):
                yield content + contents[other][size:]

    def contexts(index: int) -> Sequence[str]:
        content, width = contents[index], len(neighbours)
        return _Lazy(width**2, lambda place: neighbours[place // width] + content + neighbours[place % width])

    def normal_forms(index: int) -> Iterator[str]:
        for variant in _variants(subject.spec.normalizer, placed[index]):
            yield from (variant, f"a{variant}b", f" {variant} ")

    return {
        "alone": lambda index: (contents[index],),
        "adjacent": adjacent,
        "overlapping": lambda index: _distinct(overlapping(index)),
        "cut_short": lambda index: _distinct(_cut_short(contents[index])),
        "other_cases": lambda index: _distinct(_other_cases(contents[index])),
        "white_space": lambda index: _distinct(_white_space(contents[index])),
        "word_characters": lambda index: _word_characters(contents[index]) if index == first_word else (),
        "contexts": contexts,
        "normal_forms": lambda index: _distinct(normal_forms(index)),
    }


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _cut_short(content: str) -> Iterator[str]:
    for at in range(1, len(content)):
        yield content[:at]
        yield content[at:]
        yield content[:at] + " " + content[at:]
        yield content[:at] + content  # a match begins where the one that failed ended
    for at in range(len(content)):
        yield content[:at] + content[at + 1 :]
        yield content[:at] + content[at] + content[at:]


def _other_cases(content: str) -> Iterator[str]:
    for changed in (content.upper(), content.lower(), content.swapcase(), content.title(), content.casefold()):
        if changed != content:
            yield changed
            yield changed + content


def _white_space(content: str) -> Iterator[str]:
    white = [chr(cp) for low, high in unicode.white_space() for cp in range(low, high + 1)]
    for blank, run in product((*white, *NEARLY_WHITE), RUNS):
        space = blank * run
        yield space + content
        yield content + space
        yield f"a{space}{content}{space}b"
        yield content + space + content


def _word_characters(content: str) -> Sequence[str]:
    """Every code point behind the token, DOCUMENT to a text: which are word characters shows in whether it matches."""
    code_points = [cp for cp in range(0x110000) if not 0xD800 <= cp < 0xE000]

    def document(place: int) -> str:
        shown = code_points[place * DOCUMENT : (place + 1) * DOCUMENT]
        return "".join([f"{content}{chr(cp)}. " for cp in shown])

    return _Lazy(-(-len(code_points) // DOCUMENT), document)


def _variants(steps: tuple[NormalizerStep, ...], placed: PlacedToken) -> Iterator[str]:
    """Spellings that the normalizer may turn into what the token is matched as, and the token as it stands."""
    if not steps:
        return
    content, matched = placed.token.content, placed.matched
    yield matched
    for step in steps:
        for text in (content, matched):
            if step.op in UNICODE_FORMS:
                decomposed = normalize(_DECOMPOSE, text)
                yield decomposed
                yield "".join(character + "\u0301" for character in decomposed)
                yield text + "\u0338"
            elif step.op is NormalizerOp.REPLACE:
                yield text.replace(step.text, step.replacement)
                if step.replacement:
                    yield text.replace(step.replacement, step.text)
                yield text + step.text
                yield step.text + text
            elif step.op is NormalizerOp.PREPEND:
                yield step.text + text
                yield text.removeprefix(step.text)
            elif step.op is NormalizerOp.LOWERCASE:
                yield text.upper()
                yield text.replace("k", "\u212a").replace("i", "\u0130")
            else:
                yield f"\t {text}\n\n"
