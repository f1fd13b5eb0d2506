"""Edit scripts: what a session is taken through, as data that can be shortened and told; how to play one, and random
ones of what sessions get wrong.

Every sub-script of a script is a script: a start beyond the text means its end. Material is that of `hostile_texts`
with what a session is cut at: added tokens and graphemes half typed, line ends parted, runs without a place to cut,
first and last characters of the tokenizer's classes. Not here: what is compared (`tally`, `failures`), how many
scripts (`suites/sessions`).
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from toktier._native import SessionBase, TokenPatch
from toktier.certify.hostile_texts import PASSAGES, POOLS, WORDS, damaged_passage
from toktier.errors import SessionNeedsText

OPERATIONS = ("append", "replace", "present", "reopen")


@dataclass(frozen=True, slots=True)
class Edit:
    """`append`: `text` at the end. `replace`: everything from code point `start` on becomes `text`. `present`: the
    whole text is `text` now. `reopen`: an append, behind which a session restored from what a store would hold goes
    on; it is given the text before only when it asks for it."""

    operation: str
    text: str
    start: int = 0


Script = tuple[Edit, ...]


class Step(NamedTuple):
    """Where a session stands after an edit. `ids`: of a list to which the patches alone were applied. `lengths`:
    tokens, code points and bytes of UTF-8 as the session has them. `error`: what the edit, which is a sound one, was
    refused with; the session is of no use then."""

    edit: int
    text: str
    ids: list[int]
    lengths: tuple[int, int, int]
    error: str | None = None


class _Player:
    def __init__(self, new: Callable[[], SessionBase]) -> None:
        self._new, self.session = new, new()
        self.ids: list[int] = []
        self.text = ""
        self._before: tuple[bytes, bytes, bytes] | None = None  # what a session that was opened again may ask for

    def apply(self, edit: Edit) -> None:
        start = min(edit.start, len(self.text))
        kept = {"present": 0, "replace": start}.get(edit.operation, len(self.text))
        self.text = self.text[:kept] + edit.text
        if edit.operation == "reopen":
            return self._reopen(edit.text)
        try:
            self._change(edit, start)
        except SessionNeedsText:
            self._adopt()
            self._change(edit, start)

    def _change(self, edit: Edit, start: int) -> None:
        session = self.session
        if edit.operation == "append":
            self._patch(session.append(edit.text))
        elif edit.operation == "replace":
            self._patch(session.replace(start, edit.text))
        elif session.prepare_present(edit.text):  # in halves, because present() gives no patch
            self._patch(session.commit(session.revision + 1))

    def _patch(self, patch: TokenPatch) -> None:
        del self.ids[patch.keep_tokens :]
        self.ids += patch.replacement_ids.ids

    def _adopt(self) -> None:
        if self._before is not None:
            self.session.adopt(*self._before)
            self._before = None

    def _reopen(self, text: str) -> None:
        self._adopt()
        session = self.session
        if not session.prepare_append(text):
            return
        steps, open_ids, open_text = session.changes(0, 0)
        self._patch(session.commit(session.revision + 1))
        points, before_ids, before_text = array("Q"), b"", b""
        at = (0, 0, 0)
        for step_ids, step_text in steps:
            points.extend(at)
            before_ids, before_text = before_ids + step_ids, before_text + step_text
            at = (at[0] + len(step_text), at[1] + len(step_text.decode()), at[2] + len(step_ids) // 4)
        self.session = self._new()
        self.session.restore(session.revision, at, open_text, open_ids)
        self._before = before_text, before_ids, points.tobytes()

    def lengths(self) -> tuple[int, int, int]:
        return len(self.session), self.session.text_length, self.session.byte_length


def play(new: Callable[[], SessionBase], script: Script) -> Iterator[Step]:
    """Takes a new session through a script. Last of all, the ids that the session itself has, unless it failed."""
    player = _Player(new)
    for number, edit in enumerate(script):
        try:
            player.apply(edit)
        except Exception as error:
            yield Step(number, player.text, list(player.ids), player.lengths(), f"{type(error).__name__}: {error}")
            return
        yield Step(number, player.text, list(player.ids), player.lengths())
    if player.session.held_from == 0:
        yield Step(len(script) - 1, player.text, player.session.snapshot().ids, player.lengths())


def difference(step: Step, expected: list[int]) -> str | None:
    """What of a step differs from a fresh encoding of its text."""
    if step.error is not None:
        return "error of a session"
    if step.ids != expected:
        return "ids of a session"
    lengths = (len(expected), len(step.text), len(step.text.encode()))
    return None if step.lengths == lengths else "lengths of a session"


def to_rows(script: Script) -> list[list[Any]]:
    """As JSON: (operation, start, code points)."""
    return [[edit.operation, edit.start, [ord(c) for c in edit.text]] for edit in script]


def from_rows(rows: Any) -> Script:
    """ValueError for what `to_rows` does not make."""
    script: list[Edit] = []
    for row in rows if isinstance(rows, list) else [None]:
        match row:
            case [str(operation), int(start), list(points)] if operation in OPERATIONS and start >= 0:
                if all(type(p) is int and 0 <= p <= 0x10FFFF and not 0xD800 <= p < 0xE000 for p in points):
                    script.append(Edit(operation, "".join(map(chr, points)), start))
                    continue
        raise ValueError("no script of edits")
    return tuple(script)


@dataclass(frozen=True, slots=True)
class Material:
    """`added`: contents of added tokens; `edges`: first and last characters of classes; `vocabulary`: its strings."""

    added: Sequence[str] = ()
    edges: Sequence[str] = ()
    vocabulary: Sequence[str] = ()


GRAPHEMES = (
    "\r\n", "\r\n\r\n", " \r\n", "e\u0301", "a\u0323\u0307", "q\u0307\u0323\u0323",
    "\u1100\u1161\u11a8", "\uac00\u11a8", "か\u3099", "👩🏽‍💻", "👨‍👩‍👧‍👦", "🇩🇪🇫🇷🇯🇵", "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "☃\ufe0f", "न\u093c", "क\u094dष", "กำ", "\u0041\u030a\u0301", "\u212b\u0323", "\u0344",
    "<\u0338", "=\u0338", "don't've", "I'LL", "1234567890", "12,345.678", "٣١٤١٥", "𝟘𝟙𝟚𝟛",
    "\U0010ffff\u0301",
)  # fmt: skip
BLANKS = (" ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2009", " \n ")
BLOCK = 512  # bytes between the places to begin that a session keeps, near its end
SHORT, MEDIUM = 280, 2_600  # code points beyond which a script takes away more often than it adds


def random_script(rng: random.Random, material: Material, edits: int, base: int = 0) -> Script:
    """`base`: code points that the session begins with, in which later edits look for the places it keeps."""
    focus = rng.sample(POOLS, rng.randint(1, 3))
    longest = SHORT if base == 0 else max(MEDIUM, base + base // 8)
    text, typed, script = "", "", list[Edit]()
    if base:
        text = long_text(rng, material, base)
        script.append(Edit(rng.choice(OPERATIONS), text))
    while len(script) < edits:
        choice = rng.random()
        if len(text) > longest and choice < 0.6:
            choice = 0.75
        if choice < 0.6:
            if not typed or rng.random() < 0.25:
                typed += "".join(_part(rng, material, focus) for _ in range(rng.choice((1, 1, 2, 4, 9))))
            size = rng.choice((1, 1, 1, 2, 3, rng.randint(1, len(typed) or 1), len(typed)))
            piece, typed = typed[:size], typed[size:]
            edit = Edit("reopen" if choice < 0.04 else "append", piece)
        elif choice < 0.9:
            put = "".join(_part(rng, material, focus) for _ in range(rng.choice((0, 0, 1, 1, 3))))
            edit = Edit("replace", put, _start(rng, text))
        else:
            edit = Edit("present", _presented(rng, material, focus, text))
        script.append(edit)
        start = 0 if edit.operation == "present" else edit.start if edit.operation == "replace" else len(text)
        text = text[:start] + edit.text
    return tuple(script)


def _start(rng: random.Random, text: str) -> int:
    """Near the end, near a place to begin that a session keeps, or anywhere."""
    choice = rng.random()
    if choice < 0.6:
        return max(0, len(text) - rng.choice((0, 1, 1, 2, 2, 3, 3, 4, 5, 8, 13)))
    if choice < 0.85 and len(text) > BLOCK:
        number = rng.randint(1, max(1, len(text) // BLOCK))
        at = number * BLOCK + rng.randint(-1, 6 * number + 8)  # a place comes some characters late, and so the next
        return min(len(text), len(text.encode()[:at].decode(errors="ignore")))
    return rng.randint(0, len(text))


def _presented(rng: random.Random, material: Material, focus: list[str], text: str) -> str:
    """The text with an edit whose end is kept, cut short, added to, as it is, or another."""
    choice = rng.random()
    part = _part(rng, material, focus)
    if choice < 0.5:
        start = _start(rng, text)
        return text[:start] + part + text[start + rng.choice((0, 0, 1, 2)) :]
    if choice < 0.65:
        return text[: _start(rng, text)]
    return text + part if choice < 0.85 else text if choice < 0.95 else part


def _part(rng: random.Random, material: Material, focus: list[str]) -> str:
    choice = rng.random()
    if choice < 0.35:
        return rng.choice(rng.choice(focus)) * (rng.randint(2, 40) if rng.random() < 0.1 else 1)
    if choice < 0.5:
        return rng.choice(WORDS)
    if choice < 0.65:
        return rng.choice(GRAPHEMES)
    if choice < 0.8 and material.added:
        token = rng.choice(material.added)
        before, behind = (rng.choice(BLANKS) if rng.random() < 0.4 else "" for _ in range(2))
        cut = rng.randint(0, len(token))
        token = rng.choice((token, token, token[:cut], token[cut:], token + token[:cut], token.swapcase()))
        return before + token + behind
    if choice < 0.9 and material.edges:
        return "".join(rng.choices(material.edges, k=rng.choice((1, 2, 3))))
    if choice < 0.95 and material.vocabulary:
        return rng.choice(material.vocabulary)
    if choice < 0.99:
        return damaged_passage(rng)[:40]
    code_point = rng.randrange(0x110000)
    return chr(code_point) if not 0xD800 <= code_point <= 0xDFFF else "\ufffd"


def long_text(rng: random.Random, material: Material, size: int) -> str:
    """`size` code points. Mostly passages, in which a session finds places to cut; now and then a run without one."""
    focus = rng.sample(POOLS, 3)
    parts: list[str] = []
    left = size
    while left > 0:
        choice = rng.random()
        if choice < 0.8:
            part = rng.choice(PASSAGES)[rng.randrange(60) :]
        elif choice < 0.98:
            part = _part(rng, material, focus)
        else:
            part = rng.choice("a中 \n-7👍\u0301") * rng.randint(1, min(900, size))
        parts.append(part)
        left -= len(part)
    return "".join(parts)[:size]
