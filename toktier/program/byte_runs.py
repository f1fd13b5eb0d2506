"""Steps that split mapped bytes: Digits and Punctuation after a ByteLevel.

They see the characters that stand for bytes, so they may split inside a character: the last byte of "ò" (C3 B2) stands
for "²", which is numeric. Whether they split between two bytes depends on these two bytes alone, which makes the step
exact in two parts that the program has anyway:
  - between characters it is a stage of the boundary compiler, over the first and the last byte of each (`stage_tree`);
  - inside a character no token may join what is split, so tokens that would are taken out of the vocabulary's pieces,
    and with them the rules that make them (`splits`). What is left of a piece's merges is that of its parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

from toktier.errors import ProgramUnsupported
from toktier.program import unicode
from toktier.program.class_map import SURROGATES, Complement, Spans, spans
from toktier.program.code_point_sets import LAST_CODE_POINT, Ranges, contains
from toktier.program.regex_tree import Alternation, Chars, Concat, Node, Repeat

_LEAD_BYTES = range(0xC2, 0xF5)
_CONTINUATION = range(0x80, 0xC0)


@dataclass(frozen=True)
class ByteRuns:
    """Splits between two bytes where exactly one is in `members` (`joined`: runs of members stay together), or where at
    least one is."""

    members: frozenset[int]
    joined: bool

    @cached_property
    def _marks(self) -> bytes:
        return bytes(byte in self.members for byte in range(256))

    def splits(self, text: bytes) -> bool:
        """Whether the step splits between any two bytes of `text`."""
        marks = text.translate(self._marks)
        if self.joined:
            return b"\0\1" in marks or b"\1\0" in marks
        return len(marks) > 1 and b"\1" in marks


def byte_runs(table: Ranges, *, joined: bool, path: str) -> ByteRuns:
    """The step that splits by the characters of `table`. Raises ProgramUnsupported for a table with a lead byte."""
    alphabet = unicode.byte_alphabet()
    members = frozenset(byte for byte in range(256) if contains(table, ord(alphabet[byte])))
    if not members.isdisjoint(_LEAD_BYTES):
        raise ProgramUnsupported(path, "a step after ByteLevel that splits by the first byte of a character")
    return ByteRuns(members, joined)


@cache
def stage_tree(runs: ByteRuns) -> Node:
    """What one piece looks like, character by character: a match is a piece of the step.

    A character is *plain* (neither end is a member), *tailed* (its last byte is) or *whole* (one byte, a member).
    """
    tails = {byte & 0x3F for byte in runs.members if byte in _CONTINUATION}
    whole = spans((byte, byte) for byte in runs.members if byte < 0x80)
    tailed = spans(
        (block + tail, block + tail)
        for block in range(0x80, LAST_CODE_POINT + 1, 0x40)
        if block not in SURROGATES
        for tail in tails
    )
    plain = Complement(Spans(spans((*whole.ranges, *tailed.ranges)).ranges))
    some = Repeat(Chars(plain), 0, None, lazy=False)
    after = Repeat(Chars(whole), 0, None, lazy=False)
    if not runs.joined:
        return Alternation((Concat((some, Chars(tailed))), Repeat(Chars(plain), 1, None, lazy=False), Chars(whole)))
    return Alternation(
        (
            Concat((some, Chars(tailed), after)),
            Repeat(Chars(plain), 1, None, lazy=False),
            Repeat(Chars(whole), 1, None, lazy=False),
        )
    )
