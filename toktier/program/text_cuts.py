"""Where a text may be cut, decided slowly and plainly from the tokenizer itself: the oracle of kernels/shared/cuts.h.

A cut between two characters holds whatever else the text is: the ids of the two parts, one after the other, are the ids
of the whole. The kinds of cuts (`cuts.py`, vocabulary) and of what forbids one (`cut_guards.py`) are put together here
a second time, from contents, steps and live rules rather than from the tables made of them. Only what is certain from
two characters before and three after the bar counts, so more text on either side takes no cut away.

Not here: speed. The engine's form is native/engine/cuts.h.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from toktier.program import unicode
from toktier.program.boundary import compile_boundaries
from toktier.program.code_point_sets import contains
from toktier.program.cuts import static_cuts
from toktier.program.file import read_program
from toktier.program.layout import NONE, AddedFlag, Conf, CutKind, Flag, Join, Model, NormalizerOp
from toktier.program.normalizer import UNICODE_FORMS, NormalizerStep, normalize
from toktier.program.pair_rows import program_rules
from toktier.program.tokenizer_json import TokenizerSpec


@dataclass(frozen=True)
class _Character:
    """A character and what the normalizer makes of it alone; None where that depends on its neighbours."""

    raw: str
    image: str | None
    stages: tuple[tuple[NormalizerStep, str], ...]  # each step and the character that it is given

    @property
    def forms(self) -> tuple[str, ...]:
        return (self.raw, self.image or self.raw)

    def any(self, ranges: tuple[tuple[int, int], ...]) -> bool:
        return any(contains(ranges, ord(form)) for form in self.forms)


class TextCuts:
    """The cuts of texts under one tokenizer. `image` is its program: live rules and symbols are read from it."""

    def __init__(self, spec: TokenizerSpec, image: bytes) -> None:
        self.steps = spec.normalizer
        self.tokens = [(placed.matched.encode(), placed.token.flags) for placed in spec.added_tokens]
        self.prefix_space = spec.pre_tokenizer.prefix_space
        self.prepends = any(step.op is NormalizerOp.PREPEND for step in self.steps)
        self.strips = any(step.op is NormalizerOp.STRIP for step in self.steps)
        self.form = next((UNICODE_FORMS[step.op] for step in self.steps if step.op in UNICODE_FORMS), None)
        self.boundary = compile_boundaries(spec.pre_tokenizer.stages) if spec.pre_tokenizer.stages else None
        self.cuts = None if self.boundary is None else static_cuts(self.boundary)
        self.program = read_program(image)
        self.white, self.word = unicode.white_space(), unicode.rust_word()
        self._known: dict[str, _Character] = {}
        self._classes: dict[str, int] = {}

    def cut_list(self, text: str, *, continued: bool = False) -> tuple[list[int], bytes]:
        """As `_native.Program.cuts`."""
        found = [(i, self.kind(text, i, continued=continued)) for i in range(1, len(text))]
        at = list(itertools.accumulate((len(c.encode()) for c in text), initial=0))
        return [at[i] for i, kind in found if kind], bytes(kind for _, kind in found if kind)

    def kind(self, text: str, i: int, *, continued: bool = False) -> CutKind:
        """Of the position before text[i]; 0 < i < len(text)."""
        window = [self._character(text[k]) if 0 <= k < len(text) else None for k in range(i - 2, i + 3)]
        before, left, right, after, last = window
        assert left is not None
        assert right is not None
        if left.image is None or right.image is None or not self._stripped_nowhere(left, right):
            return CutKind.NONE
        if self._gets_prefix(right) and (not continued or self.strips or self._match_may_end(left)):
            return CutKind.NONE
        if not self._tokens_allow(left, right):
            return CutKind.NONE
        if self.form and (after is None or after.image is None):
            return CutKind.NONE
        if self.boundary is None or self.cuts is None:
            return CutKind.JOIN if self._apart(left.image, right.image) else CutKind.NONE
        n, b, c = self.boundary.n_class, self._class(left.image), self._class(right.image)
        if self.cuts.pair[b * n + c]:
            return CutKind.PAIR
        if self.cuts.left_triple and not self.strips:
            if (
                before
                and before.image
                and not self._match_may_end(before)
                and self.cuts.left_triple[(self._class(before.image) * n + b) * n + c]
            ):
                return CutKind.LEFT_TRIPLE
            if after and after.image and not self._match_may_begin(after):
                steady = not self.form or (last is not None and last.image is not None)
                if steady and self.cuts.right_triple[(b * n + c) * n + self._class(after.image)]:
                    return CutKind.RIGHT_TRIPLE
        inner = bool(self.cuts.inner) and self.cuts.inner[b * n + c] == 1
        return CutKind.JOIN if inner and self._apart(left.image, right.image) else CutKind.NONE

    # normalizer

    def _character(self, raw: str) -> _Character:
        known = self._known.get(raw)
        if known is None:
            known = self._known[raw] = self._follow(raw)
        return known

    def _follow(self, raw: str) -> _Character:
        stages: list[tuple[NormalizerStep, str]] = []
        image = raw
        for step in self.steps:
            stages.append((step, image))
            if step.op in (NormalizerOp.PREPEND, NormalizerOp.STRIP):
                continue
            made = normalize((step,), image)
            bound = step.op is NormalizerOp.REPLACE and len(step.text) > 1 and image in step.text
            if step.op in UNICODE_FORMS:
                bound = made != image or self._meets_what_is_before(image)
            if bound or len(made) != 1:
                return _Character(raw, None, tuple(stages))
            image = made
        return _Character(raw, image, tuple(stages))

    @cached_property
    def _seconds(self) -> frozenset[int]:
        """Code points that some composition ends with."""
        assert self.form is not None
        return frozenset(second for _, second in unicode.normalization(self.form).compositions)

    def _meets_what_is_before(self, character: str) -> bool:
        assert self.form is not None
        tables = unicode.normalization(self.form)
        return bool(
            ord(character) in tables.ccc
            or ord(character) in self._seconds
            or contains(tables.no_boundary_before, ord(character))
        )

    def _stripped_nowhere(self, left: _Character, right: _Character) -> bool:
        def white(character: _Character, side: str) -> bool:
            return any(
                step.op is NormalizerOp.STRIP and getattr(step, side) and contains(self.white, ord(given))
                for step, given in character.stages
            )

        return not white(right, "left") and not white(left, "right")

    def _gets_prefix(self, right: _Character) -> bool:
        """Whether a part that begins so begins with something in front of it."""
        if self.strips and (self.prepends or self.prefix_space):
            return True
        return self.prepends or (self.prefix_space and right.image != " ")

    # added tokens

    def _tokens(self, *flags: AddedFlag) -> Sequence[bytes]:
        return [content for content, own in self.tokens if all(flag in own for flag in flags)]

    def _match_may_end(self, c: _Character, *flags: AddedFlag) -> bool:
        ends = {form.encode()[-1] for form in c.forms}
        if any(content[-1] in ends for content in self._tokens(*flags)):
            return True
        return not flags and bool(self._tokens(AddedFlag.RSTRIP)) and c.any(self.white)

    def _match_may_begin(self, c: _Character, *flags: AddedFlag) -> bool:
        begins = {form.encode()[0] for form in c.forms}
        if any(content[0] in begins for content in self._tokens(*flags)):
            return True
        return not flags and bool(self._tokens(AddedFlag.LSTRIP)) and c.any(self.white)

    @cached_property
    def _inside(self) -> frozenset[bytes]:
        return frozenset(content[k : k + 2] for content, _ in self.tokens for k in range(len(content) - 1))

    def _tokens_allow(self, left: _Character, right: _Character) -> bool:
        across = {a.encode()[-1:] + b.encode()[:1] for a, b in zip(left.forms, right.forms, strict=True)}
        if not across.isdisjoint(self._inside):
            return False
        if right.any(self.word) and self._match_may_end(left, AddedFlag.SINGLE_WORD):
            return False
        if left.any(self.word) and self._match_may_begin(right, AddedFlag.SINGLE_WORD):
            return False
        if left.any(self.white) and right.any(self.white):
            return not self._tokens(AddedFlag.LSTRIP) and not self._tokens(AddedFlag.RSTRIP)
        if left.any(self.white) and self._match_may_begin(right, AddedFlag.LSTRIP):
            return False
        return not (right.any(self.white) and self._match_may_end(left, AddedFlag.RSTRIP))

    # pre-tokenizer and model

    def _class(self, character: str) -> int:
        assert self.boundary is not None
        known = self._classes.get(character)
        if known is None:
            ranges, cp = self.boundary.class_ranges, ord(character)
            known = next((value for first, last, value in ranges if first <= cp <= last), 0)
            self._classes[character] = known
        return known

    def _words(self, tag: str) -> tuple[int, ...]:
        data = self.program.section(tag)
        return struct.unpack(f"<{len(data) // 4}I", data)

    @cached_property
    def _junctions(self) -> frozenset[tuple[str | int, str | int]] | None:
        """The bytes or characters that a live rule brings side by side. None: cuts inside a piece are not to be had."""
        conf = self._words("CONF")
        if conf[Conf.JOIN_KIND] == Join.NONE or Flag.IGNORE_MERGES in Flag(conf[Conf.FLAGS]):
            return None
        starts, raw = self._words("RAWO"), bytes(self.program.section("RAWB"))
        found: set[tuple[str | int, str | int]] = set()
        for rule in program_rules(self.program):
            left, right = (raw[starts[side] : starts[side + 1]] for side in rule[:2])
            if conf[Conf.MODEL] == Model.BYTE_LEVEL:
                found.add((left[-1], right[0]))
            else:
                found.add((left.decode()[-1], right.decode()[0]))
        return frozenset(found)

    @cached_property
    def _symbols(self) -> frozenset[str]:
        """Characters that are symbols of their own; of a byte-level model, the bytes, as characters."""
        if self._words("CONF")[Conf.MODEL] == Model.BYTE_LEVEL:
            return frozenset(chr(byte) for byte, identity in enumerate(self._words("BSYM")) if identity != NONE)
        starts, raw = self._words("RAWO"), bytes(self.program.section("RAWB"))
        flags = bytes(self.program.section("TFLG"))
        texts = (raw[starts[i] : starts[i + 1]].decode() for i in range(len(starts) - 1) if flags[i] & 2)
        return frozenset(text for text in texts if len(text) == 1)

    def _apart(self, left: str, right: str) -> bool:
        if self._junctions is None:
            return False
        if self._words("CONF")[Conf.MODEL] != Model.BYTE_LEVEL:
            return left in self._symbols and right in self._symbols and (left, right) not in self._junctions
        x, y = left.encode()[-1], right.encode()[0]
        return chr(x) in self._symbols and chr(y) in self._symbols and (x, y) not in self._junctions
