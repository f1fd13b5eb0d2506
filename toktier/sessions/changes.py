"""What a change makes of a session, and which changes are refused: the same for every store.

Pure functions over states and points. Not here: where a store keeps them, and how it orders its writers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from toktier.errors import (
    InvalidText,
    InvalidToken,
    SessionNeedsText,
    SessionRevisionConflict,
    SessionStateMismatch,
)
from toktier.labels import quoted
from toktier.sessions import chains
from toktier.sessions.records import Append, CommitPoint, SessionState


class Costs(NamedTuple):
    """Bytes that a store takes for a step beside its ids and text, and for a mark: what eviction reckons with."""

    step: int
    mark: int


class Step(NamedTuple):
    """What one change adds: a commit point, its ids, its text as it is stored, and the marks passed."""

    point: CommitPoint
    ids: bytes
    text: bytes
    marks: list[tuple[int, bytes]]


def started(number: int, name: str | None, fingerprint: str, keep_text: bool) -> SessionState:
    """The state of a new session."""
    start = chains.start(fingerprint)
    return SessionState(
        number, name, fingerprint, keep_text, 0, 0, 0, 0, 0, start.ids_digest, start.text_chain, b"", b"", b"", 0
    )


def applied(state: SessionState, changes: Sequence[Append], costs: Costs) -> tuple[SessionState, list[Step]]:
    """The state after `changes` as one revision, and the steps they add."""
    new, steps = state, []
    for change in changes:
        new, step = _appended(new, change, costs)
        if step is not None:
            steps.append(step)
    return new._replace(revision=state.revision + 1), steps


def _appended(state: SessionState, change: Append, costs: Costs) -> tuple[SessionState, Step | None]:
    """The state after `change`, the revision apart, and the step it adds."""
    code_points = _code_points(change.text)
    _code_points(change.tail_text)
    if len(change.ids) % 4 or len(change.tail_ids) % 4:
        raise InvalidToken("ids of an append are not whole: expected 4 bytes each")
    new = state._replace(tail_text=change.tail_text, tail_ids=change.tail_ids)
    if not change.ids and not change.text:
        return new, None
    stored = deflated(change.text) if state.keep_text else b""
    before = chains.TextEnd(state.text_chain, state.open_text)
    end, marks = chains.extend_text(before, state.text_bytes // chains.BLOCK, change.text)
    tokens, size = state.tokens + len(change.ids) // 4, state.text_bytes + len(change.text)
    code_points += state.code_points
    text = chains.text_digest(end, tokens, size, code_points)
    ids = chains.ids_digest(state.ids_digest, text, change.ids)
    point = CommitPoint(state.sequence + 1, tokens, size, code_points, ids, end.chain, text)
    new = new._replace(
        sequence=point.sequence,
        tokens=tokens,
        text_bytes=size,
        code_points=code_points,
        ids_digest=ids,
        text_chain=end.chain,
        open_text=end.open_text,
        held=state.held + len(change.ids) + len(stored) + costs.step + len(marks) * costs.mark,
    )
    return new, Step(point, change.ids, stored, marks)


def open_text_at(state: SessionState, point: CommitPoint, before: bytes | None, kept: Callable[[int], bytes]) -> bytes:
    """The committed text after the last whole block before `point`, proven by the point: from `before`, the text that
    is presented, or from `kept`, which gives that many bytes before the point where the session keeps its text."""
    rest = point.text_bytes % chains.BLOCK
    if not rest:
        open_text = b""
    elif before is not None and len(before) >= rest:
        open_text = before[len(before) - rest :]
    elif state.keep_text:
        open_text = kept(rest)
    else:
        raise SessionNeedsText(
            f"an edit before the end of the session needs the {rest} bytes of text before it",
            details={"session": state.number, "needed_bytes": rest},
            remedy="present the text, or make sessions with keep_text=True",
        )
    end = chains.TextEnd(point.text_chain, open_text)
    if chains.text_digest(end, point.tokens, point.text_bytes, point.code_points) != point.text_digest:
        if before is None:
            raise chains.Damage("the text digest of a step does not hold")
        raise SessionStateMismatch(
            "the text that was given is not what the session committed there",
            details={"session": state.number},
            remedy="present the text that was appended, or begin another session",
        )
    return open_text


def cut(state: SessionState, point: CommitPoint, open_text: bytes, held: int) -> SessionState:
    """The state with all after `point` dropped."""
    return state._replace(
        sequence=point.sequence,
        tokens=point.tokens,
        text_bytes=point.text_bytes,
        code_points=point.code_points,
        ids_digest=point.ids_digest,
        text_chain=point.text_chain,
        open_text=open_text,
        held=held,
    )


def expect(change: Append, revision: int) -> None:
    if change.expected_revision != revision:
        raise conflict(change.expected_revision, revision)


def expect_end(state: SessionState, point: CommitPoint) -> None:
    """Raises SESSION_STATE_MISMATCH unless `point` is where the session ends."""
    if (point.sequence, point.ids_digest) != (state.sequence, state.ids_digest):
        raise foreign_point(state)


def expect_fingerprint(state: SessionState, name: str, fingerprint: str) -> None:
    if state.fingerprint != fingerprint:
        raise SessionStateMismatch(
            f"the session {quoted(name)} is of a tokenizer with another fingerprint",
            details={"expected": fingerprint, "found": state.fingerprint},
            remedy="open it with the tokenizer that made it, or give another session name",
        )


def is_same_session(one: SessionState, other: SessionState) -> bool:
    """Whether both are states of one session, at whatever revisions."""
    written_once = ("number", "name", "fingerprint", "keep_text")
    return all(getattr(one, name) == getattr(other, name) for name in written_once)


def conflict(expected: int, found: int | None) -> SessionRevisionConflict:
    what = "is gone" if found is None else f"is at revision {found}"
    if found == expected:
        what = "has another history (the store was restored, or lost its end)"
    return SessionRevisionConflict(
        f"the session {what}: expected revision {expected}",
        details={"expected": expected, "found": found},
        remedy="open the session again, and apply the change to what it holds now",
    )


def foreign_point(state: SessionState) -> SessionStateMismatch:
    return SessionStateMismatch(
        "the commit point is none of this session any more",
        details={"session": state.number},
        remedy="ask the session for its points again",
    )


def expect_kept_text(state: SessionState) -> None:
    if not state.keep_text:
        raise SessionNeedsText(
            "the session keeps no text",
            details={"session": state.number},
            remedy="present the text, or make sessions with keep_text=True",
        )


def deflated(text: bytes) -> bytes:
    return zlib.compress(text) if text else b""


def inflated(stored: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(stored)
    except (zlib.error, TypeError):
        raise chains.Damage("the text of a step cannot be inflated") from None
    if not stream.eof or stream.unused_data:
        raise chains.Damage("the text of a step is cut, or more than there should be")
    return text


def encoded(text: str | bytes) -> bytes:
    """UTF-8. Raises INVALID_TEXT for lone surrogates."""
    if isinstance(text, bytes):
        return text
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidText(
            f"the text has a lone surrogate at code point {error.start}", details={"position": error.start}
        ) from None


def _code_points(text: bytes) -> int:
    try:
        return len(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidText(f"the text is no UTF-8 at byte {error.start}", details={"position": error.start}) from None
