"""Guards of cuts: between which characters neither an added token nor the normalizer lets a text be cut, as sections.

Added tokens, of either pass. No match may reach across a cut: two bytes that stand side by side in some content are
never cut apart (GPAR). No match may look across it (single_word beside a word character) or take in white space across
it (lstrip, rstrip), which the bytes that contents begin and end with decide (GBYT). What is left is the scan state, and
it is the same: no match crosses, so the search reaches the cut with nothing open.

Normalizer. A character that every step turns into exactly one character, whatever stands beside it, keeps what is on
its two sides apart, and what it becomes is its *image* (GIMG). All others are opaque: there is no cut beside them. A
Unicode form may still combine such a character with a mark behind it, which is opaque, so the reader of the guards
looks at the character behind as well.

Conservative, not exact: a refused position may be harmless. Not here: classes and vocabularies (`cuts.py`, JBYT, JSYM).
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Sequence
from functools import cache

from toktier.program import unicode
from toktier.program.added_tokens import PlacedToken
from toktier.program.byte_trie import little_endian
from toktier.program.code_point_sets import LAST_CODE_POINT
from toktier.program.code_point_trie import build_trie
from toktier.program.layout import AddedFlag, Edge, Guard, NormalizerOp
from toktier.program.normalizer import UNICODE_FORMS, NormalizerStep

_AT_THE_END = {
    AddedFlag.SINGLE_WORD: Edge.ENDS_WORD,
    AddedFlag.RSTRIP: Edge.RSTRIP,
}
_AT_THE_START = {
    AddedFlag.SINGLE_WORD: Edge.BEGINS_WORD,
    AddedFlag.LSTRIP: Edge.LSTRIP,
}


def cut_guard_sections(
    steps: Sequence[NormalizerStep], prefix_space: bool, tokens: Sequence[PlacedToken]
) -> dict[str, bytes]:
    """GPAR and GBYT where there are added tokens; GCP1, GCP2 and GIMG where there is a normalizer or a prefix space."""
    sections: dict[str, bytes] = {}
    if tokens:
        sections |= _token_sections(tokens)
    if steps or prefix_space:
        sections |= _normalizer_sections(steps, prefix_space)
    return sections


def _token_sections(tokens: Sequence[PlacedToken]) -> dict[str, bytes]:
    pairs, edges = bytearray(8192), bytearray(256)
    for placed in tokens:
        content, flags = placed.matched.encode(), placed.token.flags
        for first, second in itertools.pairwise(content):
            bit = first << 8 | second
            pairs[bit >> 3] |= 1 << (bit & 7)
        edges[content[-1]] |= Edge.ENDS | _edges(_AT_THE_END, flags)
        edges[content[0]] |= Edge.BEGINS | _edges(_AT_THE_START, flags)
    return {"GPAR": bytes(pairs), "GBYT": bytes(edges)}


def _edges(meaning: dict[AddedFlag, Edge], flags: AddedFlag) -> Edge:
    edges = Edge(0)
    for flag, edge in meaning.items():
        if flag in flags:
            edges |= edge
    return edges


def _normalizer_sections(steps: Sequence[NormalizerStep], prefix_space: bool) -> dict[str, bytes]:
    strips = any(step.op is NormalizerOp.STRIP for step in steps)
    prepends = any(step.op is NormalizerOp.PREPEND for step in steps)
    everywhere = Guard(0)
    if prepends or prefix_space:
        # What is stripped to nothing gets no prefix, so the part behind it would need one: never a cut then.
        everywhere = Guard.NOT_BEFORE if strips else Guard.PREFIX
    marked: dict[int, Guard] = {}
    images = array("I")
    for cp in sorted(_touched(steps) | {ord(" ")}):
        guard, image = _guard_of(steps, chr(cp))
        if not (prefix_space and not prepends and not strips and image == " "):
            guard |= everywhere
        if image is not None and image != chr(cp):
            guard |= Guard.IMAGE
            images.extend((cp, ord(image)))
        marked[cp] = guard
    stage1, stage2 = build_trie(_rows(marked, everywhere), 0, 1)
    return {"GCP1": stage1, "GCP2": stage2, "GIMG": little_endian(images)}


def _guard_of(steps: Sequence[NormalizerStep], character: str) -> tuple[Guard, str | None]:
    """Its guard without PREFIX and IMAGE, and its image, None where it is opaque."""
    guard = Guard(0)
    for step in steps:
        if step.op in UNICODE_FORMS:
            if ord(character) in _bound(UNICODE_FORMS[step.op]):
                return Guard.OPAQUE, None
        elif step.op is NormalizerOp.LOWERCASE:
            lower = unicode.lowercase().get(ord(character))
            if lower is not None:
                if len(lower) != 1:
                    return Guard.OPAQUE, None
                character = chr(lower[0])
        elif step.op is NormalizerOp.REPLACE:
            if character == step.text:
                if len(step.replacement) != 1:
                    return Guard.OPAQUE, None
                character = step.replacement
            elif character in step.text:
                return Guard.OPAQUE, None
        elif step.op is NormalizerOp.STRIP and ord(character) in _white_space():
            guard |= (Guard.NOT_BEFORE if step.left else Guard(0)) | (Guard.NOT_AFTER if step.right else Guard(0))
    return guard, character


def _touched(steps: Sequence[NormalizerStep]) -> set[int]:
    """Every character that some step treats unlike others."""
    touched: set[int] = set()
    for step in steps:
        if step.op in UNICODE_FORMS:
            touched |= _bound(UNICODE_FORMS[step.op])
        elif step.op is NormalizerOp.LOWERCASE:
            touched |= unicode.lowercase().keys()
        elif step.op is NormalizerOp.REPLACE:
            touched |= set(map(ord, step.text))
        elif step.op is NormalizerOp.STRIP:
            touched |= _white_space()
    return touched


@cache
def _bound(form: str) -> frozenset[int]:
    """What may change, or combine with what is before it."""
    tables = unicode.normalization(form)
    return frozenset(_members(tables.not_inert)) | frozenset(_members(tables.no_boundary_before))


@cache
def _white_space() -> frozenset[int]:
    return frozenset(_members(unicode.white_space()))


def _members(ranges: Iterable[tuple[int, int]]) -> Iterable[int]:
    for first, last in ranges:
        yield from range(first, last + 1)


def _rows(marked: dict[int, Guard], others: Guard) -> list[tuple[int, int, int]]:
    """For `build_trie`: the marked code points, and all others as `others`."""
    rows: list[tuple[int, int, int]] = []
    after = 0
    for cp in sorted(marked):
        if others and cp > after:
            rows.append((after, cp - 1, int(others)))
        first, value = cp, int(marked[cp])
        if rows and rows[-1][1] == cp - 1 and rows[-1][2] == value:
            first = rows.pop()[0]
        rows.append((first, cp, value))
        after = cp + 1
    if others and after <= LAST_CODE_POINT:
        rows.append((after, LAST_CODE_POINT, int(others)))
    return rows
