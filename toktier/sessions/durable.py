"""A session whose every change a store has before the call returns (`docs/session-store.md`).

The state in memory and the store move together: a change is prepared, written, and only then committed in memory; what
the store refuses is forgotten here too. A session that is opened again holds its open end alone, so the first append
reads no history; what comes before is read when somebody asks for it, and believed only after its digests hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from struct import pack
from typing import TYPE_CHECKING, TypeVar

from toktier._native import Encoding, TokenPatch, text_of
from toktier.errors import SessionNeedsText, StoreCorrupt
from toktier.labels import quoted
from toktier.sessions import chains
from toktier.sessions.live import Live, Text, expect_revision
from toktier.sessions.records import Append, CommitPoint, SessionState
from toktier.sessions.session import Session
from toktier.sessions.turns import Turns

if TYPE_CHECKING:
    from toktier.sessions import protocol

_T = TypeVar("_T")
BEFORE = chains.BLOCK - 1  # bytes of text before a point that the store may need


class DurableSession(Session):
    """A named session in a store. Two processes may use one: whoever writes second gets SessionRevisionConflict, and
    `refresh` brings what the other one wrote."""

    def __init__(self, new_live: Callable[[], Live], stored: protocol.Session, name: str) -> None:
        self.name, self.fingerprint = name, stored.state.fingerprint
        self._new_live = new_live
        self._stored = stored
        self._current: Live | None = None
        self._current_of: SessionState | None = None
        self._before = b""  # text before what is held, as much as the store's row had
        self._turn = Turns()
        self._changing = 0  # process in which a change is under way: a forked child has none

    @property
    def _live(self) -> Live:
        """What is held in memory counts for the very state object that it was read or written with. So whatever comes
        between the store's change and that of memory (a signal, a fork, no memory) makes memory be read anew."""
        with self._turn.lock:
            live, state = self._current, self._stored.state
            if live is None or self._current_of is not state:
                live = self._new_live()
                live.restore(
                    state.revision, (state.text_bytes, state.code_points, state.tokens), state.tail_text, state.tail_ids
                )
                self._before, self._current = state.open_text, live
                self._current_of = state
            return live

    def append(self, text: Text, *, expected_revision: int | None = None) -> TokenPatch:
        """As `Session.append`. Returns when the store has it. SessionRevisionConflict where another process wrote
        meanwhile; a store that cannot be written leaves session and store as they were."""

        def change() -> TokenPatch:
            expect_revision(expected_revision, self.revision)
            return self._changed(lambda live: live.prepare_append(text))

        return self._alone(change)

    def replace(self, start: int, text: Text, *, expected_revision: int | None = None) -> TokenPatch:
        """As `Session.replace`, and `append`. SessionNeedsText where what stands before is not held: present the whole
        text, or make sessions with keep_text=True."""

        def change() -> TokenPatch:
            expect_revision(expected_revision, self.revision)
            return self._changed(lambda live: live.prepare_replace(start, text))

        return self._alone(change)

    def present(self, text: Text, add_special_tokens: bool = False) -> Encoding:
        """As `Session.present`. The first time after it was opened again, the stored ids are read and believed as far
        as the digests hold over the presented text."""
        if not isinstance(text, (str, bytes)):
            text_of(text)
            text = bytes(text)  # looked at more than once, and a buffer may change

        def change() -> Encoding:
            live = self._live
            if live.held_from > 0:
                live = self._recalled(text_of(text).encode())
            if live.prepare_present(text):
                self._write(live)
            return live.presented(text, add_special_tokens)

        return self._alone(change)

    def snapshot(self) -> Encoding:
        """As `Session.snapshot`. An Encoding without offsets where the text before what is held is not known."""
        with self._turn.lock:
            live = self._live
            if live.held_from > 0 and self._stored.state.keep_text:
                self._adopt_kept_text()
            if live.held_from == 0:
                return live.snapshot()
            return Encoding.from_ids(self._all_ids(), backend="fast_cpu")

    def _all_ids(self) -> memoryview:
        with self._turn.lock:
            live = self._live
            held = live.held_ids()
            if live.held_from > 0:
                # How many there are before is known by the state that was opened, whose seal held.
                held = self._stored.ids()[: 4 * len(live) - len(held)] + held
            return memoryview(held).cast("I")

    def _all_text(self) -> bytes:
        with self._turn.lock:
            if self._live.held_from > 0:
                self._adopt_kept_text()
            return self._live.held_text()

    @property
    def revision(self) -> int:
        return self._stored.state.revision

    @property
    def memory(self) -> int:
        live = self._current
        return 0 if live is None else live.memory

    def refresh(self) -> int:
        """Takes over what other processes wrote; gives the revision. SessionRevisionConflict: the session is gone."""

        def change() -> int:
            before = self._stored.state
            valid = self._current_of is before
            found = self._stored.refresh()
            # By all of the state: a store that was restored can come to the same revision by another history.
            if valid and found == before:
                self._current_of = found
            else:
                self._current = self._current_of = None
            return found.revision

        return self._alone(change)

    def close(self) -> None:
        with self._turn.lock:
            self._current = self._current_of = None

    def _alone(self, change: Callable[[], _T]) -> _T:
        """A finalizer or a signal handler can come in the middle of a change, in the same thread: its own is refused,
        as a session in memory does."""
        with self._turn.lock:
            process = os.getpid()
            if self._changing == process:
                raise RuntimeError("this thread is changing the session already")
            try:
                self._changing = process
                return change()
            finally:
                self._changing = 0

    def _changed(self, prepare: Callable[[Live], bool]) -> TokenPatch:
        live = self._live
        try:
            prepared = prepare(live)
        except SessionNeedsText:
            if not self._stored.state.keep_text:
                raise
            self._adopt_kept_text()
            prepared = prepare(live)
        if not prepared:
            return TokenPatch((len(live), Encoding.from_ids(()), self.revision))
        return self._write(live)

    def _write(self, live: Live) -> TokenPatch:
        """What was prepared into the store, then into memory."""
        state = self._stored.state
        try:
            begin = live.prepared_begin()
            if begin >= state.text_bytes:
                revision = self._stored.append(*self._appends(live, state.text_bytes, state.tokens))
            else:
                point = self._stored.last_point("text_bytes", begin)
                if not live.held_from <= point.text_bytes <= begin:
                    raise self._corrupt("its steps are not where they were")
                changes = self._appends(live, point.text_bytes, point.tokens)
                revision = self._stored.replace(point, *changes, before=self._text_before(live, point.text_bytes))
        except BaseException:
            live.discard()
            raise
        patch = live.commit(revision)
        self._current = live
        self._current_of = self._stored.state
        return patch

    def _appends(self, live: Live, from_bytes: int, from_tokens: int) -> list[Append]:
        steps, open_ids, open_text = live.changes(from_bytes, from_tokens)
        expected = self.revision
        last = steps.pop() if steps else (b"", b"")
        return [Append(expected, ids, text) for ids, text in steps] + [Append(expected, *last, open_text, open_ids)]

    def _text_before(self, live: Live, end: int) -> bytes:
        held = live.text_before(end, BEFORE)
        return held if len(held) == BEFORE or live.held_from == 0 else (self._before + held)[-BEFORE:]

    def _adopt_kept_text(self) -> None:
        """SessionNeedsText where none is kept."""
        if self._recalled(self._stored.text()) is not self._live:
            raise self._corrupt("its steps are not of its text")

    def _corrupt(self, what: str) -> StoreCorrupt:
        return StoreCorrupt(
            f"the session {quoted(self.name or '')} is damaged: {what}",
            details={"session": self._stored.state.number},
            remedy="remove this session from the store, and present its text anew",
        )

    def _recalled(self, text: bytes) -> Live:
        """What is held, with all before it, where `text` begins with that. Else another one, for `text` to be presented
        to: the longest stored prefix that `text` begins with and goes on after, so that there is something to change.
        It becomes what is held when that is written. Whether the text may be cut where the prefix ends is for the next
        change to see: what comes behind may be another text than it was."""
        live = self._live
        points = self._points_of(text, live.held_from)
        same = bool(points) and points[-1].text_bytes == live.held_from
        if not same:
            live = self._new_live()
            if points and points[-1].text_bytes == len(text):
                points.pop()
            if not text:
                self._stored.replace(self._stored.last_point("text_bytes", 0), Append(self.revision))
        state = self._stored.state
        if not points:
            live.restore(state.revision, (0, 0, 0), b"", b"")
            return live
        end = points[-1]
        if not same:
            live.restore(state.revision, (end.text_bytes, end.code_points, end.tokens), b"", b"")
        numbers = b"".join(pack("=3Q", p.text_bytes, p.code_points, p.tokens) for p in points[:-1])
        live.adopt(text[: end.text_bytes], self._stored.ids()[: end.tokens * 4], numbers)
        return live

    def _points_of(self, text: bytes, most: int) -> list[CommitPoint]:
        """The points, the beginning not among them, up to the last one whose text digest holds over `text`, and none
        behind byte `most`."""
        end, at, found = chains.TextEnd(chains.text_seed(self._stored.state.fingerprint), b""), 0, []
        for point in self._stored.points():
            if point.text_bytes > min(most, len(text)):
                break
            end, _ = chains.extend_text(end, 0, text[at : point.text_bytes])
            at = point.text_bytes
            if chains.text_digest(end, point.tokens, point.text_bytes, point.code_points) != point.text_digest:
                break
            found.append(point)
        return found
