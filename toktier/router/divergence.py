"""How two outputs of one prompt differ: not at all, in whitespace, in words, or in what they say.

Reuse of a slot is lossless where the engine is: outputs with and without it are then the same, or differ by a
near-tie of two tokens that another order of sums decides. This sorts pairs of such outputs into four classes. Rules
come first, for what no measure of likeness sees (`the answer is 4`, `the answer is 5`); what they leave is cosmetic
where a *measure* finds the parts that differ alike enough, and substantive otherwise. Every rule errs towards
substantive. Not here: where pairs come from (`output_pairs`), a measure that sees meaning (`minilm`).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from toktier.router.telling_words import DENIALS, NUMBER_WORDS, OPPOSITES


class Divergence(StrEnum):
    """The class of a pair, from equal to different."""

    IDENTICAL = "identical"
    WHITESPACE_ONLY = "whitespace_only"
    COSMETIC = "cosmetic"
    SUBSTANTIVE = "substantive"


DIVERGENCE_MEANINGS: Final[dict[Divergence, str]] = {
    Divergence.IDENTICAL: "the same text, character for character",
    Divergence.WHITESPACE_ONLY: "the same but for runs of whitespace and whitespace at both ends",
    Divergence.COSMETIC: "other words or another layout, and the measure finds them alike",
    Divergence.SUBSTANTIVE: "a rule found what changes the meaning, or the measure finds them unlike",
}


class Reason(StrEnum):
    """What put a pair into its class; the first that applies, in this order."""

    EQUAL = "equal"
    WHITESPACE = "whitespace"
    EMPTY = "empty"
    DATA = "data"
    CODE = "code"
    LAYOUT = "layout"
    NUMBERS = "numbers"
    NEGATIONS = "negations"
    OPPOSITES = "opposites"
    NAMES = "names"
    LEFT_OUT = "left_out"
    MEASURE = "measure"


REASON_MEANINGS: Final[dict[Reason, str]] = {
    Reason.EQUAL: "the texts are equal",
    Reason.WHITESPACE: "the texts are equal but for whitespace",
    Reason.EMPTY: "one says nothing",
    Reason.DATA: "both are JSON: cosmetic where the values are the same, else substantive",
    Reason.CODE: "code between backticks differs",
    Reason.LAYOUT: "the same words, with other case, punctuation, symbols or markup",
    Reason.NUMBERS: "a number, or a sign of computation, comparison or currency, is other, missing or elsewhere",
    Reason.NEGATIONS: "one denies more often than the other",
    Reason.OPPOSITES: "one has yes, before, more where the other has no, after, less",
    Reason.NAMES: "each has a name that the other lacks",
    Reason.LEFT_OUT: "one has sentences, and the other no word in their place",
    Reason.MEASURE: "the measure, of the sentences that differ",
}


class Measure(Protocol):
    """Likeness of two texts from 0 to 1 (a cosine may be less); `threshold` and more is cosmetic."""

    @property
    def name(self) -> str: ...

    @property
    def threshold(self) -> float: ...

    @property
    def blind_to(self) -> str:
        """What it cannot see, for people."""
        ...

    def likeness(self, one: str, other: str) -> float: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """`likeness` is None where the measure was not asked."""

    divergence: Divergence
    reason: Reason
    likeness: float | None = None


# A word of a script that puts no blanks between words is one character; any other a run of letters and digits.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|[^\W\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")


class TokenOverlap:
    """Words that two texts share: twice the shared ones over all (Sørensen–Dice), each as often as it stands there.

    It knows words and no meaning. The threshold was chosen on tests/router/divergence_pairs.jsonl (docs/divergence.md).
    """

    name: Final = "overlap"
    threshold: float = 0.80
    blind_to: Final = (
        "meaning: a paraphrase in other words counts as substantive, one changed word or another order of the same "
        "words in a sentence as cosmetic, unless a rule sees it"
    )

    def likeness(self, one: str, other: str) -> float:
        first, second = Counter(_words(one)), Counter(_words(other))
        total = first.total() + second.total()
        return 0.0 if total == 0 else 2 * (first & second).total() / total


def classify(one: str, other: str, measure: Measure) -> Verdict:
    """The class of a pair. Symmetric as far as the measure is; linear in the length of both."""
    if one == other:
        return Verdict(Divergence.IDENTICAL, Reason.EQUAL)
    words = one.split(), other.split()
    if words[0] == words[1]:
        return Verdict(Divergence.WHITESPACE_ONLY, Reason.WHITESPACE)
    if not words[0] or not words[1]:
        return Verdict(Divergence.SUBSTANTIVE, Reason.EMPTY)
    del words
    one, other = _composed(one), _composed(other)
    data = _data(one), _data(other)
    if data[0] is not None and data[1] is not None:
        same = data[0] == data[1]
        return Verdict(Divergence.COSMETIC if same else Divergence.SUBSTANTIVE, Reason.DATA)
    for reason, facts in RULES:
        if facts(one, other):
            return Verdict(Divergence.SUBSTANTIVE, reason)
    one, other = _unmarked(one), _unmarked(other)
    if any(_words(one)) and list(_words(one)) == list(_words(other)):
        return Verdict(Divergence.COSMETIC, Reason.LAYOUT)
    one, other = differing_sentences(one, other)
    if not any(_words(one)) or not any(_words(other)):
        return Verdict(Divergence.SUBSTANTIVE, Reason.LEFT_OUT)
    likeness = measure.likeness(one, other)
    alike = likeness >= measure.threshold  # false for what is no number
    return Verdict(Divergence.COSMETIC if alike else Divergence.SUBSTANTIVE, Reason.MEASURE, likeness)


_SENTENCE = re.compile(r"[^.!?。！？\n]*[.!?。！？\n]+|[^.!?。！？\n]+")


def differing_sentences(one: str, other: str) -> tuple[str, str]:
    """Both without the sentences that they have in common at the beginning and at the end.

    Outputs of one prompt are equal up to the first other token, often for pages: over the whole of both, every measure
    would call them alike.
    """
    first, second = (_SENTENCE.findall(text) for text in (one, other))
    begin = _common(zip(first, second, strict=False))
    shorter = min(len(first), len(second)) - begin
    end = min(shorter, _common(zip(reversed(first), reversed(second), strict=False)))
    return "".join(first[begin : len(first) - end]), "".join(second[begin : len(second) - end])


def _common(pairs: Iterable[tuple[str, str]]) -> int:
    count = 0
    for one, other in pairs:
        if one.split() != other.split():
            break
        count += 1
    return count


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _unmarked(text: str) -> str:
    return _MARKUP.sub("", text)


def _words(text: str) -> Iterator[str]:
    """Words without case; markup, punctuation and symbols are none."""
    return (match.group().casefold().strip("_") for match in _WORD.finditer(text))


def _data(text: str) -> str | None:
    """The JSON value of a text that is an object or an array, in one spelling; None for any other text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return None


_INLINE = re.compile(r"(`{1,2})(?!`)([^`]+)\1")
_FENCES = ("```", "~~~")


def _code(text: str) -> list[str]:
    """Lines of code between fences, with their indentation, and code inside of a line; in order. The language that a
    fence names is none of it."""
    found: list[str] = []
    fence: str | None = None
    for line in text.split("\n"):
        mark = line.lstrip()[:3]
        if mark == fence:
            fence = None
        elif fence is not None:
            if line.strip():
                found.append(line.rstrip())
        elif mark in _FENCES:
            fence = mark
        else:
            found += [code.strip() for _, code in _INLINE.findall(line)]
    return found


# Markdown that says nothing by itself: bullets, numbers of a list, headings, quotations, rules, emphasis.
_MARKUP = re.compile(
    r"^[ \t>]*(?:[-*+•]|#{1,6}|\d{1,3}[.)])[ \t]+(?=\S)|^[ \t]*>+|^[ \t]*[-=*_]{3,}[ \t]*$"
    r"|\*\*|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)",
    re.MULTILINE,
)
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w.,)\]])[-−])?(?P<digits>\d+(?:[.,]\d+)*)"
    # A minus between what is computed with; any other is a hyphen or a dash.
    r"|(?P<minus>(?<=\d)[-−–](?=\d)|(?<=[\d)] )[-−](?= [\d(])|(?<=\b\w )[-−](?= \w\b))"
    r"|[²³¹⁰⁴-⁹½¼¾⅓⅔%#+<>=^*/$¢£¤¥×÷±¬₠-⃀←-⇿∀-⋿✅✓✔✗✘❌☑☒]"
    r"|(?P<word>[^\W\d_²³¹⁰⁴-⁹½¼¾⅓⅔]+)"
)
_GROUPS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")


def _numbers(text: str) -> list[str]:
    """Numbers, signs of computation, comparison and currency, and ticks and crosses, in the order in which they stand:
    `1,000.50` as 1000.5, `seven` as 7."""
    found: list[str] = []
    for match in _NUMBER.finditer(_unmarked(text)):
        if match["word"] is not None:
            if (value := NUMBER_WORDS.get(match["word"].casefold())) is not None:
                found.append(value)
        elif match["digits"] is not None:
            found.append(("-" if match["sign"] else "") + _plain(match["digits"]))
        else:
            found.append("-" if match["minus"] else match.group())
    return found


def _plain(digits: str) -> str:
    if not digits.isascii():
        digits = "".join(c if c in ".," else str(unicodedata.decimal(c)) for c in digits)
    if _GROUPS.fullmatch(digits):
        digits = digits.replace(",", "")
    if digits.count(".") == 1 and "," not in digits:
        digits = digits.rstrip("0").rstrip(".")
    return digits.lstrip("0") or "0"


_DENIED = re.compile(r"[不没沒無无]|ません|ない|なかった")
_SHORTENED = re.compile(r"n['’]t(?![\w])", re.IGNORECASE)


def _denials(text: str) -> int:
    words = sum(word in DENIALS for word in _words(_SHORTENED.sub(" not", text)))
    return words + sum(1 for _ in _DENIED.finditer(text))


def _opposed(one: str, other: str) -> bool:
    """Whether one has more of one side of a pair of opposites, and the other more of the other side."""
    first, second = Counter(_words(one)), Counter(_words(other))
    for side, against in OPPOSITES:
        here = sum(first[word] - second[word] for word in side)
        there = sum(first[word] - second[word] for word in against)
        if here * there < 0:
            return True
    return False


# A word with a capital behind another word of its sentence, so that no beginning of a sentence is a name.
_NAME = re.compile(r"(?<=[\w,;:] )[^\W\d_a-z]\w+")


def _names_differ(one: str, other: str) -> bool:
    names = [{name for name in _NAME.findall(text) if name[0].isupper()} for text in (one, other)]
    if names[0] == names[1]:
        return False
    words = [set(_words(text)) for text in (one, other)]
    return any(n.casefold() not in words[1] for n in names[0]) and any(n.casefold() not in words[0] for n in names[1])


RULES: Final[tuple[tuple[Reason, Callable[[str, str], bool]], ...]] = (
    (Reason.CODE, lambda one, other: _code(one) != _code(other)),
    (Reason.NUMBERS, lambda one, other: _numbers(one) != _numbers(other)),
    (Reason.NEGATIONS, lambda one, other: _denials(one) != _denials(other)),
    (Reason.OPPOSITES, _opposed),
    (Reason.NAMES, _names_differ),
)


class Tally:
    """Counts of a run, of any number of pairs."""

    def __init__(self) -> None:
        self.classes: dict[Divergence, int] = dict.fromkeys(Divergence, 0)
        self.reasons: dict[Reason, int] = dict.fromkeys(Reason, 0)  # of substantive pairs

    def add(self, verdict: Verdict) -> None:
        self.classes[verdict.divergence] += 1
        if verdict.divergence is Divergence.SUBSTANTIVE:
            self.reasons[verdict.reason] += 1

    @property
    def pairs(self) -> int:
        return sum(self.classes.values())

    @property
    def divergent(self) -> int:
        """All but the identical ones."""
        return self.pairs - self.classes[Divergence.IDENTICAL]

    @property
    def substantive_percent(self) -> float | None:
        """Of divergent pairs, the part that is substantive; None where no pair diverges: there is nothing to divide."""
        if not self.divergent:
            return None
        return 100 * self.classes[Divergence.SUBSTANTIVE] / self.divergent
