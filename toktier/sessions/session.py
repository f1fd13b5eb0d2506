"""Sessions as a user meets them: a text that grows, named or not, in memory or in a store, all with the same calls.

Here are the base and the one in memory. The one in a store: `durable.py`; which one a tokenizer gives:
`open_sessions.py`.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from toktier._native import Encoding, TokenPatch, ids_of
from toktier.sessions.live import Live, Text


class Session:
    """A growing text and its ids. At every step they equal those of a fresh encoding of the whole text: its core
    stream, without a template's special tokens. Made by `Tokenizer.session`. Thread-safe: one change at a time.

    Work grows with what is new, not with what is there. A context manager: leaving it is `close`.
    """

    def __init__(self, live: Live, name: str | None, fingerprint: str) -> None:
        """`name`: None where nobody else can ask for it. `fingerprint`: of the tokenizer whose ids these are."""
        self._live_session = live
        self.name, self.fingerprint = name, fingerprint

    @property
    def _live(self) -> Live:
        return self._live_session

    def append(self, text: Text, *, expected_revision: int | None = None) -> TokenPatch:
        """Adds text at the end. The patch: the first `keep_tokens` ids stay, `replacement_ids` come behind them.

        `expected_revision`: raises SessionRevisionConflict, and changes nothing, where the session is at another one.
        InvalidText for a lone surrogate and for malformed UTF-8. An empty text changes nothing, the revision included.
        """
        return self._live.append(text, expected_revision=expected_revision)

    def replace(self, start: int, text: Text, *, expected_revision: int | None = None) -> TokenPatch:
        """Everything from code point `start` on becomes `text`; an empty one cuts the end off.

        ValueError for a `start` that is not in the text; SessionNeedsText where a session that was opened again does
        not hold what stands before it. Otherwise as `append`.
        """
        return self._live.replace(start, text, expected_revision=expected_revision)

    def present(self, text: Text, add_special_tokens: bool = False) -> Encoding:
        """The whole text as it is now; its Encoding. Only what differs is encoded. `add_special_tokens`: the Encoding
        has the template's tokens around it; the session never has."""
        return self._live.present(text, add_special_tokens)

    def snapshot(self) -> Encoding:
        """All ids, as an Encoding."""
        return self._live.snapshot()

    @property
    def text(self) -> str:
        """The whole text. SessionNeedsText where a session that was opened again does not hold it."""
        return self._all_text().decode()

    def _all_text(self) -> bytes:
        return self._live.held_text()

    @property
    def ids(self) -> list[int]:
        """A new list of all ids."""
        return ids_of(self._all_ids())

    def _all_ids(self) -> memoryview:
        return memoryview(self._live.held_ids()).cast("I")

    @property
    def text_length(self) -> int:
        """Code points."""
        return self._live.text_length

    @property
    def revision(self) -> int:
        """Changes so far; in a store those of every process."""
        return self._live.revision

    @property
    def memory(self) -> int:
        """Bytes that text and ids take in this process."""
        return self._live.memory

    def __len__(self) -> int:
        return len(self._live)

    def refresh(self) -> int:
        """In a store: takes over what other processes wrote. In memory there are none. Gives the revision."""
        return self.revision

    def close(self) -> None:
        """A session in a store gives its memory back, and reads its state again when it is used next. One in memory
        lives as long as anybody holds it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Session cannot be pickled or copied: give the text, or a store and a name")

    def __repr__(self) -> str:
        of = "" if self.name is None else f" {self.name!r}"
        return f"<toktier.Session{of}, {len(self)} tokens at revision {self.revision}>"
