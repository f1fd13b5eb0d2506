"""What a session works on: a text and its ids as they stand, in memory. Two of a kind, used alike by `session.py` and
`durable.py`: the native one, and one for a tokenizer that the reference or a third-party engine serves, which encodes
the whole text at every change (correct, and as slow as that is). Not here: stores, names, locks of callers.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, Protocol

from toktier._native import Encoding, SessionBase, TokenPatch, text_of
from toktier.errors import SessionNeedsText, SessionRevisionConflict
from toktier.integer_argument import integer_argument
from toktier.sessions.turns import Turns

Text = Any  # str, or bytes-like UTF-8
Changes = tuple[list[tuple[bytes, bytes]], bytes, bytes]


class Live(Protocol):
    """What `_native.SessionBase` is; there its stub says what each member means."""

    def append(self, text: Text, *, expected_revision: int | None = None) -> TokenPatch: ...
    def replace(self, start: int, text: Text, *, expected_revision: int | None = None) -> TokenPatch: ...
    def present(self, text: Text, add_special_tokens: bool = False) -> Encoding: ...
    def snapshot(self) -> Encoding: ...
    def prepare_append(self, text: Text, /) -> bool: ...
    def prepare_replace(self, start: int, text: Text, /) -> bool: ...
    def prepare_present(self, text: Text, /) -> bool: ...
    def presented(self, text: Text, add_special_tokens: bool, /) -> Encoding: ...
    def commit(self, revision: int, /) -> TokenPatch: ...
    def discard(self) -> None: ...
    def prepared_begin(self) -> int: ...
    def changes(self, from_bytes: int, from_tokens: int, /) -> Changes: ...
    def text_before(self, end: int, longest: int, /) -> bytes: ...
    def held_ids(self) -> bytes: ...
    def held_text(self) -> bytes: ...
    def restore(self, revision: int, final: tuple[int, int, int], open_text: bytes, open_ids: bytes, /) -> None: ...
    def adopt(self, text: bytes, ids: bytes, points: bytes, /) -> None: ...
    def __len__(self) -> int: ...
    @property
    def text_length(self) -> int: ...
    @property
    def byte_length(self) -> int: ...
    @property
    def held_from(self) -> int: ...
    @property
    def memory(self) -> int: ...
    @property
    def revision(self) -> int: ...


class NativeLive(SessionBase):
    """The native one. `_native.SessionBase` says what each method does."""


class ReferenceLive:
    """Of a tokenizer that another engine serves. Nothing of it is ever final: others say nothing of cuts."""

    def __init__(self, encode: Callable[[str, bool], Encoding], backend: str = "hf") -> None:
        """`encode`: text and whether the template's tokens are wanted. `backend`: what results say served."""
        self._encode, self._backend = encode, backend
        self._text, self._ids, self.revision = "", array("I"), 0
        self._base = (0, 0, 0)  # bytes, code points and tokens before what is held
        self._prepared: tuple[str, array[int]] | None = None
        self._turn = Turns()

    def append(self, text: Text, *, expected_revision: int | None = None) -> TokenPatch:
        with self._turn.lock:
            return self._change(expected_revision, self.prepare_append(text))

    def replace(self, start: int, text: Text, *, expected_revision: int | None = None) -> TokenPatch:
        with self._turn.lock:
            return self._change(expected_revision, self.prepare_replace(start, text))

    def present(self, text: Text, add_special_tokens: bool = False) -> Encoding:
        with self._turn.lock:
            self._change(None, self.prepare_present(text))
            return self.presented(text, add_special_tokens)

    def presented(self, text: Text, add_special_tokens: bool) -> Encoding:
        return self._encode(self._text, add_special_tokens)

    def snapshot(self) -> Encoding:
        return self._encode(self._text, False)

    def prepare_append(self, text: Text) -> bool:
        return self._prepare(self._text + text_of(text))

    def prepare_replace(self, start: int, text: Text) -> bool:
        start = integer_argument(start, "start")
        if not 0 <= start <= self.text_length:
            raise ValueError(f"start is {start}: the text has {self.text_length} code points")
        return self._prepare(self._text[:start] + text_of(text))

    def prepare_present(self, text: Text) -> bool:
        return self._prepare(text_of(text))

    def _prepare(self, text: str) -> bool:
        if self._base[0] > 0:
            raise SessionNeedsText(
                "the native engine began this session; the reference, which serves now, needs all of its text",
                details={"held_from": self._base[1]},
                remedy="present the whole text: encode(text, session=...)",
            )
        self._prepared = None if text == self._text else (text, array("I", self._encode(text, False)))
        return self._prepared is not None

    def _change(self, expected_revision: int | None, prepared: bool) -> TokenPatch:
        try:
            expect_revision(expected_revision, self.revision)
        except BaseException:
            self.discard()
            raise
        if not prepared:
            return TokenPatch((len(self), Encoding.from_ids((), backend=self._backend), self.revision))
        return self.commit(self.revision + 1)

    def commit(self, revision: int) -> TokenPatch:
        assert self._prepared is not None, "nothing is prepared"
        text, ids = self._prepared
        keep = 0
        for keep, (old, new) in enumerate(zip(self._ids, ids, strict=False)):  # noqa: B007 the count is wanted
            if old != new:
                break
        else:
            keep = min(len(self._ids), len(ids))
        self._text, self._ids, self.revision, self._prepared = text, ids, revision, None
        return TokenPatch((keep, Encoding.from_ids(ids[keep:], backend=self._backend), revision))

    def discard(self) -> None:
        self._prepared = None

    def prepared_begin(self) -> int:
        return 0

    def changes(self, from_bytes: int, from_tokens: int) -> Changes:
        assert self._prepared is not None, "nothing is prepared"
        text, ids = self._prepared
        return [], ids.tobytes(), text.encode()

    def text_before(self, end: int, longest: int) -> bytes:
        return self._text.encode()[max(0, end - longest) : end]

    def held_ids(self) -> bytes:
        return self._ids.tobytes()

    def held_text(self) -> bytes:
        return self._text.encode()

    def restore(self, revision: int, final: tuple[int, int, int], open_text: bytes, open_ids: bytes) -> None:
        """What the native engine made final needs its text before anything can be encoded: `adopt`."""
        self._base = final
        self._text, self._ids, self.revision = open_text.decode(), array("I", open_ids), revision

    def adopt(self, text: bytes, ids: bytes, points: bytes) -> None:
        self._text, self._ids, self._base = text.decode() + self._text, array("I", ids) + self._ids, (0, 0, 0)

    def __len__(self) -> int:
        return self._base[2] + len(self._ids)

    @property
    def text_length(self) -> int:
        return self._base[1] + len(self._text)

    @property
    def byte_length(self) -> int:
        return self._base[0] + len(self._text.encode())

    @property
    def held_from(self) -> int:
        return self._base[0]

    @property
    def memory(self) -> int:
        return len(self._text) * 4 + len(self._ids) * 4


def expect_revision(expected: int | None, found: int) -> None:
    """As the native session: TypeError for what is no integer, SessionRevisionConflict for another revision."""
    if expected is None:
        return
    if integer_argument(expected, "expected_revision", " or None") == found:
        return
    raise SessionRevisionConflict(
        f"the session is at revision {found}: expected revision {expected}",
        details={"expected": expected, "found": found},
        remedy="apply the change to what the session holds now",
    )
