"""What goes into a store and comes out of it, as small frozen records: named tuples, which take a tenth of the time of
dataclasses to define, and that is time of the first append in a process."""

from __future__ import annotations

from typing import NamedTuple


class Append(NamedTuple):
    """One change of a session. IDs are little-endian uint32, texts UTF-8 and whole code points.

    What is committed ends at a position where the text may be cut; the tail is what comes after it, as it stands now.
    """

    expected_revision: int
    ids: bytes = b""
    text: bytes = b""
    tail_text: bytes = b""
    tail_ids: bytes = b""


class CommitPoint(NamedTuple):
    """The end of one append: how much of the session is committed there, and the digests of it.

    `sequence` counts the appends that committed something; 0 is the beginning.
    """

    sequence: int
    tokens: int
    text_bytes: int
    code_points: int
    ids_digest: bytes
    text_chain: bytes
    text_digest: bytes


class SessionState(NamedTuple):
    """All that is needed to go on: the row that opening a session reads."""

    number: int
    name: str | None
    fingerprint: str
    keep_text: bool
    revision: int
    sequence: int
    tokens: int
    text_bytes: int
    code_points: int
    ids_digest: bytes
    text_chain: bytes
    open_text: bytes
    tail_text: bytes
    tail_ids: bytes
    held: int


class SessionInfo(NamedTuple):
    """What `list` and `show` say of a session. Counts are of what is committed; `name` is None for anonymous ones."""

    number: int
    name: str | None
    fingerprint: str
    keep_text: bool
    revision: int
    appends: int
    tokens: int
    text_bytes: int
    code_points: int
    tail_bytes: int
    tail_tokens: int
    held_bytes: int
    last_use: float


class Finding(NamedTuple):
    """One thing that `verify` found wrong; `session` is its number, None for the database as a whole."""

    session: int | None
    sentence: str


class Prefix(NamedTuple):
    """A stored prefix of a presented text, verified over it: `ids` encode exactly its first `text_bytes` bytes.

    `ids_digest`: of the point at which it ends.
    """

    session: int
    tokens: int
    text_bytes: int
    code_points: int
    ids: bytes
    ids_digest: bytes
