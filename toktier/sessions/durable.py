"""A session whose every change a store has before the call returns (`docs/session-store.md`).

The state in memory and the store move together: a change is prepared, written, and only then committed in memory; what
the store refuses is forgotten here too. A session that is opened again holds its open end alone, so the first append
reads no history; what comes before is read when somebody asks for it, and believed only after its digests hold.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import TYPE_CHECKING

from toktier._native import Encoding, TokenPatch, text_of
from toktier.errors import SessionNeedsText
from toktier.sessions import chains
from toktier.sessions.live import Live, Text, expect_revision
from toktier.sessions.records import Append, CommitPoint
from toktier.sessions.session import Session
from toktier.sessions.turns import Turns

if TYPE_CHECKING:
    from toktier.sessions import protocol

BEFORE = chains.BLOCK - 1  # bytes of text before a point that the store may need


class DurableSession(Session):
    """A named session in a store. Two processes may use one: whoever writes second gets SessionRevisionConflict, and
    `refresh` brings what the other one wrote."""

    def __init__(self, new_live: Callable[[], Live], stored: protocol.Session, name: str) -> None:
        self.name, self.fingerprint = name, stored.state.fingerprint
        self._new_live = new_live
        self._stored = stored
        self._current: Live | None = None
        self._before = b""  # text before what is held, as much as the store's row had
        self._turn = Turns()

    @property
    def _live(self) -> Live:
        if self._current is None:
            state = self._stored.state
            live = self._new_live()
            live.restore(
                state.revision, (state.text_bytes, state.code_points, state.tokens), state.tail_text, state.tail_ids
            )
            self._before, self._current = state.open_text, live
        return self._current

    def append(self, text: Text, *, expected_revision: int | None = None) -> TokenPatch:
        """As `Session.append`. Returns when the store has it. SessionRevisionConflict where another process wrote
        meanwhile; a store that cannot be written leaves session and store as they were."""
        with self._turn:
            expect_revision(expected_revision, self.revision)
            return self._write(self._live.prepare_append(text))

    def replace(self, start: int, text: Text, *, expected_revision: int | None = None) -> TokenPatch:
        """As `Session.replace`, and `append`. SessionNeedsText where what stands before is not held: present the whole
        text, or make sessions with keep_text=True."""
        with self._turn:
            expect_revision(expected_revision, self.revision)
            try:
                prepared = self._live.prepare_replace(start, text)
            except SessionNeedsText:
                if not self._stored.state.keep_text:
                    raise
                self._adopt_kept_text()
                prepared = self._live.prepare_replace(start, text)
            return self._write(prepared)

    def present(self, text: Text, add_special_tokens: bool = False) -> Encoding:
        """As `Session.present`. The first time after it was opened again, the stored ids are read and believed as far
        as the digests hold over the presented text."""
        with self._turn:
            if self._live.held_from > 0:
                self._recall(text_of(text).encode())
            if self._live.prepare_present(text):
                self._write(True)
            return self._live.presented(text, add_special_tokens)

    def snapshot(self) -> Encoding:
        """As `Session.snapshot`. An Encoding without offsets where the text before what is held is not known."""
        with self._turn:
            if self._live.held_from > 0 and self._stored.state.keep_text:
                self._adopt_kept_text()
            if self._live.held_from == 0:
                return self._live.snapshot()
            return Encoding.from_ids(self._all_ids(), backend="fast_cpu")

    def _all_ids(self) -> memoryview:
        with self._turn:
            held = self._live.held_ids()
            if self._live.held_from > 0:
                held = self._stored_ids_before(self._live.held_from) + held
            return memoryview(held).cast("I")

    def _all_text(self) -> bytes:
        with self._turn:
            if self._live.held_from > 0:
                self._adopt_kept_text()
            return self._live.held_text()

    @property
    def revision(self) -> int:
        return self._stored.state.revision

    @property
    def memory(self) -> int:
        return 0 if self._current is None else self._current.memory

    def refresh(self) -> int:
        """Takes over what other processes wrote; gives the revision. SessionRevisionConflict: the session is gone."""
        with self._turn:
            before = self._stored.state.revision
            if self._stored.refresh().revision != before:
                self._current = None
            return self._stored.state.revision

    def close(self) -> None:
        with self._turn:
            self._current = None

    def _write(self, prepared: bool) -> TokenPatch:
        """What was prepared into the store, then into memory."""
        live, state = self._live, self._stored.state
        if not prepared:
            return TokenPatch((len(live), Encoding.from_ids(()), state.revision))
        try:
            begin = live.prepared_begin()
            if begin >= state.text_bytes:
                revision = self._stored.append(*self._appends(state.text_bytes, state.tokens))
            else:
                point = self._stored.last_point("text_bytes", begin)
                changes = self._appends(point.text_bytes, point.tokens)
                revision = self._stored.replace(point, *changes, before=self._text_before(point.text_bytes))
        except BaseException:
            live.discard()
            raise
        return live.commit(revision)

    def _appends(self, from_bytes: int, from_tokens: int) -> list[Append]:
        steps, open_ids, open_text = self._live.changes(from_bytes, from_tokens)
        expected = self.revision
        last = steps.pop() if steps else (b"", b"")
        return [Append(expected, ids, text) for ids, text in steps] + [Append(expected, *last, open_text, open_ids)]

    def _text_before(self, end: int) -> bytes:
        held = self._live.text_before(end, BEFORE)
        return held if len(held) == BEFORE else (self._before + held)[-BEFORE:]

    def _stored_ids_before(self, end: int) -> bytes:
        """Ids of the text before a byte, which is a point of the session; proven by their chain."""
        return self._stored.ids()[: self._stored.last_point("text_bytes", end).tokens * 4]

    def _adopt_kept_text(self) -> None:
        """SessionNeedsText where none is kept."""
        self._recall(self._stored.text())

    def _recall(self, text: bytes) -> None:
        """Makes memory hold all of the longest stored prefix that `text` begins with. Whether the text may be cut where
        the prefix ends is for the next change to see: what comes behind may be another text than it was."""
        points, state = self._points_of(text), self._stored.state
        if not points:
            self._before, self._current = b"", self._new_live()
            self._current.restore(state.revision, (0, 0, 0), b"", b"")
            return
        end = points[-1]
        if not end.text_bytes == state.text_bytes == self._live.held_from:
            self._current = self._new_live()
            self._current.restore(state.revision, (end.text_bytes, end.code_points, end.tokens), b"", b"")
        numbers = b"".join(pack("=3Q", p.text_bytes, p.code_points, p.tokens) for p in points[:-1])
        self._live.adopt(text[: end.text_bytes], self._stored.ids()[: end.tokens * 4], numbers)
        self._before = b""

    def _points_of(self, text: bytes) -> list[CommitPoint]:
        """The points, the beginning not among them, up to the last one whose text digest holds over `text`."""
        end, at, found = chains.TextEnd(chains.text_seed(self._stored.state.fingerprint), b""), 0, []
        for point in self._stored.points():
            if point.text_bytes > len(text):
                break
            end, _ = chains.extend_text(end, 0, text[at : point.text_bytes])
            at = point.text_bytes
            if chains.text_digest(end, point.tokens, point.text_bytes, point.code_points) != point.text_digest:
                break
            found.append(point)
        return found
