"""After which special tokens a text may be cut: the ids of the two parts are then the ids of the whole.

That holds after an added token that is found wherever its text stands, takes in nothing of what follows, and does not
depend on what follows (docs/prefix-cache.md gives the reasons one by one). One string that overlaps another makes the
whole set useless: the cache is off then, and says for which pair. Not here: finding them in a text (native/cache).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field

from toktier.cache.facts import Added, Facts
from toktier.cache.overlaps import overlapped_by, overlapping_pair
from toktier.labels import quoted

_CHARACTER_BY_CHARACTER = frozenset({"Lowercase"})
"""Normalizers under which what a token matches does not depend on its neighbours, and parts normalize as the whole."""
_NO_WORD = frozenset(("Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "Zs", "Zl", "Zp", "Cc"))
"""Categories without a word character of the reference, which is one alphabetic, a mark, digit, connector or joiner.
Some of the others are, and of what this Python does not know yet: "So" has letters in circles, "Cf" the joiners."""


@dataclass(frozen=True, slots=True)
class Boundaries:
    """`tokens`: those that end a prefix. `dropped`: others, each with its reason. `disabled`: why there are none."""

    tokens: tuple[str, ...] = ()
    dropped: dict[str, str] = field(default_factory=dict)
    disabled: str | None = None

    def without(self, dropped: dict[str, str]) -> Boundaries:
        """The same with fewer tokens."""
        if not dropped:
            return self
        left = tuple(token for token in self.tokens if token not in dropped)
        return _left(left, {**self.dropped, **dropped})


def choose(special_tokens: Iterable[str], facts: Facts | None) -> Boundaries:
    """`facts`: of the backend; None: unknown, and the strings alone are judged."""
    tokens = tuple(dict.fromkeys(token for token in special_tokens if token))
    if not tokens:
        return Boundaries(disabled="there are no special tokens, after which alone a text may be cut")
    pair = overlapping_pair(tokens)
    if pair is not None:
        a, b = pair
        what = f"{quoted(a)} overlaps itself" if a == b else f"{quoted(a)} and {quoted(b)} overlap"
        return Boundaries(disabled=f"the special token {what}" if a == b else f"the special tokens {what}")
    if facts is None:
        return Boundaries(tokens)
    if facts.whole is not None:
        return Boundaries(disabled=facts.whole)
    return Boundaries(tokens).without(_unsafe(tokens, facts))


def _left(tokens: tuple[str, ...], dropped: dict[str, str]) -> Boundaries:
    if tokens:
        return Boundaries(tokens, dropped)
    token, reason = next(iter(dropped.items()))
    more = "" if len(dropped) == 1 else f", and {len(dropped) - 1} more"
    return Boundaries(dropped=dropped, disabled=f"no special token is left: {quoted(token)} {reason}{more}")


def _unsafe(tokens: tuple[str, ...], facts: Facts) -> dict[str, str]:
    added = {token.content: token for token in facts.added}
    single_word = any(token.single_word for token in facts.added)
    strips = any(token.lstrip or token.rstrip for token in facts.added)
    by_character = set(facts.normalizer) <= _CHARACTER_BY_CHARACTER

    def reason(content: str, token: Added | None) -> str | None:
        if token is None or not token.special:
            return "is no special added token of the tokenizer"
        if token.rstrip:
            return "takes in white space behind it (rstrip)"
        if token.single_word:
            return "depends on what stands behind it (single_word)"
        if token.normalized and not by_character:
            return "is looked for in normalized text (normalized)"
        if token.normalized and facts.normalizer and not content.isascii():
            # Which letters are upper case, and of which others, depends on the version of Unicode that is asked.
            return "is looked for in lower-cased text (normalized), and not of ASCII alone"
        if single_word and (content[-1] == "_" or unicodedata.category(content[-1]) not in _NO_WORD):
            return "may end with a word character, and another added token is single_word"
        if strips and (content[0].isspace() or content[-1].isspace()):
            return "has white space at an end, and another added token takes in white space"
        return None

    unsafe = {content: why for content in tokens if (why := reason(content, added.get(content))) is not None}
    candidates = [content for content in tokens if content not in unsafe]
    others = [content for content in added if content not in candidates]
    for content, other in overlapped_by(candidates, others).items():
        unsafe[content] = f"overlaps the added token {quoted(other)}"
    if facts.normalizer and any(token.normalized for token in facts.added):
        # Normalized tokens are found in lower-cased text, where other strings may overlap than in the text as it is.
        lowered = {content.lower(): content for content in candidates}
        rest = [content.lower() for content in added if content not in lowered.values()]
        for low, other in overlapped_by(lowered, rest).items():
            unsafe.setdefault(lowered[low], f"overlaps the added token {quoted(other)}, lower-cased")
        alike = len(lowered) < len(candidates) or overlapping_pair(lowered) is not None
        for content in candidates if alike else ():
            unsafe.setdefault(content, "is of a set that overlaps when lower-cased")
    return unsafe
