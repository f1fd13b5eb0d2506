"""Why a position of a text is no cut: the first of the rules of docs/program-format.md ("Cuts") that forbids it, with
the characters that it looked at.

The plain form of the rule decides (`toktier.program.text_cuts`), so a reason is given exactly where there is no cut.
Positions are looked at as those of a session are: the part behind is continued, so it gets no prefix of its own.
"""

from __future__ import annotations

from toktier.labels import quoted
from toktier.program.code_point_sets import contains
from toktier.program.layout import AddedFlag, CutKind
from toktier.program.normalizer import normalize
from toktier.program.text_cuts import TextCuts, _Character
from toktier.program.tokenizer_json import TokenizerSpec

RULES = ("normalizer", "strip", "prefix", "added_token", "end", "piece", "merge")


class CutReasons(TextCuts):
    def __init__(self, spec: TokenizerSpec, image: bytes) -> None:
        super().__init__(spec, image)
        self.added_flags = {placed.id: placed.token.flags for placed in spec.added_tokens}

    def beside_word(self, text: str, start: int, end: int) -> bool:
        """Whether a word character touches text[start:end], so that no single_word token is matched there."""
        around = text[max(0, start - 1) : start] + text[end : end + 1]
        return any(contains(self.word, ord(character)) for character in around)

    def images(self, text: str) -> str | None:
        """What the normalizer makes of each character, where that is one character whatever is beside it."""
        images = [self._character(character).image for character in text]
        return None if None in images else "".join(image or "" for image in images)

    def normalized(self, segment: str) -> str:
        """A segment as its pre-tokenizer gets it."""
        made = normalize(self.steps, segment)
        return f" {made}" if self.prefix_space and made and not made.startswith(" ") else made

    def why_not(self, text: str, i: int) -> tuple[str, str] | None:
        """One of RULES and a clause, for the position before text[i], 0 < i < len(text). None: it is a cut."""
        if self.kind(text, i, continued=True) != CutKind.NONE:
            return None
        left, right = self._character(text[i - 1]), self._character(text[i])
        for character in (left, right):
            if character.image is None:
                return (
                    "normalizer",
                    f"the normalizer may change {quoted(character.raw)} together with what is beside it",
                )
        if not self._stripped_nowhere(left, right):
            return "strip", "the normalizer strips white space where a part begins or ends"
        if self._gets_prefix(right) and (self.strips or self._match_may_end(left)):
            return "prefix", f"an added token may end with {quoted(left.raw)}, and what comes behind one gets a prefix"
        if not self._tokens_allow(left, right):
            return "added_token", self._added_token(left, right)
        if self.form:
            after = self._character(text[i + 1]) if i + 1 < len(text) else None
            if after is None:
                return "end", f"what comes next may combine with {quoted(right.raw)}"
            if after.image is None:
                return "normalizer", f"{quoted(after.raw)} may combine with {quoted(right.raw)} before it"
        both = f"{quoted(left.raw)} and {quoted(right.raw)}"
        if self.boundary is None or self.cuts is None:
            return "merge", f"a merge may join {both}, and there is no pre-tokenizer"
        assert left.image is not None
        assert right.image is not None
        inner = self.cuts.inner and self.cuts.inner[
            self._class(left.image) * self.boundary.n_class + self._class(right.image)
        ]  # fmt: skip
        if inner and not self._apart(left.image, right.image):
            return "merge", f"no piece always starts between {both}, and a merge may join them"
        return "piece", f"whether a piece starts between {both} depends on more than one character beside them"

    def _added_token(self, left: _Character, right: _Character) -> str:
        """Which way an added token may reach over the bar. The order is that of `_tokens_allow`."""
        across = {a.encode()[-1:] + b.encode()[:1] for a, b in zip(left.forms, right.forms, strict=True)}
        within = next((content for content, _ in self.tokens if any(pair in content for pair in across)), None)
        if within is not None:
            return f"the added token {quoted(within.decode())} may go on here"
        looks_on = right.any(self.word) and self._match_may_end(left, AddedFlag.SINGLE_WORD)
        if looks_on or (left.any(self.word) and self._match_may_begin(right, AddedFlag.SINGLE_WORD)):
            return "an added token that must be a word of its own may end or begin here"
        return "an added token may take in white space here"
