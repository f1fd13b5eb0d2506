"""The append rule for one text: where it may be cut, what an append to it would encode again, and why nothing later is
a cut. For people: cuts, tokens and pieces are those of the engine, reasons of the plain form of the rule
(`cut_reasons.py`).

A *part* is the text between two cuts. Parts are encoded apart: their ids, one after the other, are those of the whole.
An append keeps all parts but the last, which is open. Not here: pages and JSON (`toktier_cli`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from toktier._native import EncoderBase, Program, SessionBase
from toktier.inspection.cut_reasons import CutReasons
from toktier.program.code_point_sets import contains
from toktier.program.layout import AddedFlag, CutKind
from toktier.program.tokenizer_json import TokenizerSpec

KINDS = {
    "pair": "between two such characters a piece always starts",
    "left_triple": "the same, of the two and the character before them",
    "right_triple": "the same, of the two and the character behind them",
    "join": "a piece may go on here, and no merge joins the two characters",
}
START = "start"  # in place of a kind: the first part begins with the text
MANY = 200  # of what one part lists: characters, pieces, tokens


@dataclass(frozen=True)
class Part:
    """`at` and `pieces`: code points of the text. `text`, `pieces`, `ids`: at most MANY. `pieces`: where a piece starts
    in it; None where that is not known: the normalizer moves characters, or what comes before is not listed. `kind`: of
    the cut before it."""

    at: int
    kind: str
    characters: int
    text: str
    pieces: tuple[int, ...] | None
    tokens: int
    ids: tuple[int, ...]


@dataclass(frozen=True)
class NotACut:
    """A position behind the last cut. `rule`: normalizer, strip, prefix, added_token, end, piece or merge."""

    at: int
    rule: str
    reason: str


@dataclass(frozen=True)
class AppendRule:
    """`parts`: the last ones. `cuts`: how many of each kind. `open_from`: where an append begins to encode (code
    points); `kept_tokens` stay. `positions`: of the open part, the last ones; `earlier`: more that are not listed."""

    characters: int
    utf8_bytes: int
    tokens: int
    cuts: dict[str, int]
    parts: tuple[Part, ...]
    open_from: int
    kept_tokens: int
    positions: tuple[NotACut, ...]
    earlier: int


def append_rule(spec: TokenizerSpec, image: bytes, text: str, *, parts: int, positions: int) -> AppendRule:
    """`text` under the tokenizer `spec`, whose program is `image`. `parts` and `positions`: how many to list."""
    utf8 = text.encode()
    program, reasons = Program(image), CutReasons(spec, image)
    cuts, kinds = program.cuts(utf8, True)
    starts, names = [0, *cuts][-parts:], [START, *(CutKind(kind).name.lower() for kind in kinds)][-parts:]
    made = tuple(_parts(program, reasons, utf8, starts, names))
    session = SessionBase(EncoderBase(program))
    session.append(utf8)
    last, end = made[-1], len(text)
    first = max(last.at + 1, end - positions + 1)
    behind = [NotACut(i, *found) for i in range(first, end) if (found := reasons.why_not(text, i)) is not None]
    if text:
        behind.append(NotACut(end, "end", "it depends on what comes next"))
    counts = Counter(CutKind(kind).name.lower() for kind in kinds)
    return AppendRule(
        characters=end,
        utf8_bytes=len(utf8),
        tokens=len(session),
        cuts={name: counts[name] for name in KINDS},
        parts=made,
        open_from=last.at,
        kept_tokens=len(session) - last.tokens,
        positions=tuple(behind),
        earlier=max(0, first - last.at - 1),
    )


def _parts(program: Program, reasons: CutReasons, utf8: bytes, starts: list[int], names: list[str]) -> Iterator[Part]:
    """The parts that begin at these bytes, with the tokens by which each makes a session longer."""
    session = SessionBase(EncoderBase(program))
    head, tail = utf8[: starts[0]].decode(), utf8[starts[0] :].decode()
    session.append(head)
    pieces = _piece_starts(program, reasons, tail, continued=bool(head))
    if names[0] == "join":
        pieces[0] = None  # the piece may have begun before
    at = 0
    for (begin, end), name in zip(itertools.pairwise([*starts, len(utf8)]), names, strict=True):
        part, before = utf8[begin:end].decode(), len(session)
        patch = session.append(part)
        ids = patch.replacement_ids.ids[before - patch.keep_tokens :]
        here = pieces[at : at + len(part)]
        yield Part(
            at=len(head) + at,
            kind=name,
            characters=len(part),
            text=part[:MANY],
            pieces=None
            if None in here
            else tuple(len(head) + at + i for i, starting in enumerate(here) if starting)[:MANY],
            tokens=len(ids),
            ids=tuple(ids[:MANY]),
        )
        at += len(part)


# Pieces


def _piece_starts(program: Program, reasons: CutReasons, text: str, *, continued: bool) -> list[bool | None]:
    """For each character whether a piece starts there; None where pieces have no places in the text."""
    starts: list[bool | None] = []
    for segment, added in _segments(program, reasons, text):
        if added:
            starts += [True] + [False] * (len(segment) - 1)
        else:
            starts += _segment_starts(program, reasons, segment, continued and not starts)
    return starts


def _segments(program: Program, reasons: CutReasons, text: str) -> Iterator[tuple[str, bool]]:
    """The text as added tokens, with the white space that they take in, and what lies between them."""
    session = SessionBase(EncoderBase(program))
    session.append(text)
    found = session.snapshot()
    done = 0
    for token, (start, end) in zip(found.ids, found.offsets, strict=True):
        flags = reasons.added_flags.get(token)
        if flags is None or start < done or (AddedFlag.SINGLE_WORD in flags and reasons.beside_word(text, start, end)):
            continue
        while AddedFlag.LSTRIP in flags and start > done and contains(reasons.white, ord(text[start - 1])):
            start -= 1
        while AddedFlag.RSTRIP in flags and end < len(text) and contains(reasons.white, ord(text[end])):
            end += 1
        if start > done:
            yield text[done:start], False
        if end > start:
            yield text[start:end], True
        done = end
    if done < len(text):
        yield text[done:], False


def _segment_starts(program: Program, reasons: CutReasons, segment: str, continued: bool) -> list[bool | None]:
    """Where the normalizer makes one character of each, behind some prefix, pieces have places."""
    images = reasons.images(segment)
    normalized = images if continued else reasons.normalized(segment)
    if images is None or normalized is None or not normalized.endswith(images):
        return [None] * len(segment)
    prefix = len(normalized) - len(images)
    borders, _ = program.split(normalized)
    utf8, starts, done, at = normalized.encode(), [False] * len(normalized), 0, 0
    for border in borders:
        at, done = at + len(utf8[done:border].decode()), border
        starts[at] = True
    return [True, *starts[prefix + 1 :]]
