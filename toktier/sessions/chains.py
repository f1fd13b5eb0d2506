"""Digest chains of a session: one over blocks of its text, one over its appends, and the seal of its state.

The text chain depends on fingerprint and text alone, not on how the text came: so the chain of a presented text finds
stored ones. A kibibyte is the block because what follows the last whole one must lie in the state row and is written
with every append; a look-up is entered at every fourth.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from toktier import canonical
from toktier.sessions.records import CommitPoint, SessionState

BLOCK = 1024
MARK_BLOCKS = 4
MARK = BLOCK * MARK_BLOCKS  # text bytes between two entries of the look-up

_POINT = canonical.digest_prefix(canonical.TAG_STORE_POINT)
_STATE = canonical.digest_prefix(canonical.TAG_STORE_STATE)


class Damage(Exception):
    """Something stored that does not hold: a sentence without any text of the store. The caller knows whether that is
    an error or a miss."""


class TextEnd(NamedTuple):
    """The chain over the whole blocks of a text, and what comes after them."""

    chain: bytes
    open_text: bytes


def text_seed(fingerprint: str) -> bytes:
    return canonical.digest_prefix(canonical.TAG_STORE_TEXT, fingerprint.encode()).digest()


def ids_seed(fingerprint: str) -> bytes:
    return canonical.digest_prefix(canonical.TAG_STORE_IDS, fingerprint.encode()).digest()


def name_key(name: bytes) -> bytes:
    return canonical.digest_prefix(canonical.TAG_STORE_NAME, name).digest()


def extend_text(end: TextEnd, blocks: int, text: bytes) -> tuple[TextEnd, list[tuple[int, bytes]]]:
    """The end after `text`, where `blocks` whole blocks came before; and (number, chain) of each mark passed."""
    data = end.open_text + text if end.open_text else text
    whole = len(data) - len(data) % BLOCK
    chain = end.chain
    marks: list[tuple[int, bytes]] = []
    for at in range(0, whole, BLOCK):
        chain = sha256(chain + data[at : at + BLOCK]).digest()
        blocks += 1
        if blocks % MARK_BLOCKS == 0:
            marks.append((blocks // MARK_BLOCKS, chain))
    return TextEnd(chain, bytes(data[whole:])), marks


def text_digest(end: TextEnd, tokens: int, size: int, code_points: int) -> bytes:
    """Of all the text up to a point and the counts there, so that a point can be believed without reading its ids."""
    digest = _POINT.copy()
    digest.update(struct.pack("<3Q", tokens, size, code_points) + end.chain + end.open_text)
    return digest.digest()


def mark_key(chain: bytes) -> int:
    """What the look-up is indexed by: 64 bits of the chain. What they find is verified over the text."""
    return int.from_bytes(chain[:8], "little", signed=True)


def ids_digest(before: bytes, text: bytes, ids: bytes | memoryview) -> bytes:
    """The chain over appends: `text` is the text digest of the point, which holds its counts, too."""
    digest = sha256(before + text)
    digest.update(ids)
    return digest.digest()


def prove_ids(fingerprint: str, steps: Sequence[tuple[int, bytes, bytes]], ids: bytes) -> None:
    """Raises Damage unless the chain of the steps (tokens, text digest, ids digest), in order from the first, holds."""
    digest, at = ids_seed(fingerprint), 0
    view = memoryview(ids)
    for tokens, text, stored in steps:
        digest = sha256(b"".join((digest, text, view[at : 4 * tokens]))).digest()
        if digest != stored:
            raise Damage("the digest of a step does not hold")
        at = 4 * tokens


def prove_last(state: SessionState, last: CommitPoint) -> None:
    """Raises Damage unless the state ends at its last point."""
    found = (last.tokens, last.text_bytes, last.code_points, last.ids_digest, last.text_chain)
    if found != (state.tokens, state.text_bytes, state.code_points, state.ids_digest, state.text_chain):
        raise Damage("the last step is not what the state row says")


def prove_text(state: SessionState, text: bytes) -> None:
    """Raises Damage unless `text` is all that the session committed."""
    end, _ = extend_text(TextEnd(text_seed(state.fingerprint), b""), 0, text)
    if end != TextEnd(state.text_chain, state.open_text):
        raise Damage("the digest of a text does not hold")


def prove_points(state: SessionState, points: Sequence[CommitPoint], text: bytes) -> list[tuple[int, bytes]]:
    """The marks of a text (number, chain). Raises Damage unless each point is one of that text."""
    end, at, found = TextEnd(text_seed(state.fingerprint), b""), 0, []
    for point in points:
        end, marks = extend_text(end, at // BLOCK, text[at : point.text_bytes])
        at = point.text_bytes
        found += marks
        digest = text_digest(end, point.tokens, point.text_bytes, point.code_points)
        if (end.chain, digest) != (point.text_chain, point.text_digest):
            raise Damage("the text digest of a step does not hold")
    return found


def start(fingerprint: str) -> CommitPoint:
    seed = text_seed(fingerprint)
    return CommitPoint(0, 0, 0, 0, ids_seed(fingerprint), seed, text_digest(TextEnd(seed, b""), 0, 0, 0))


def seal(state: SessionState) -> bytes:
    """Over everything in a session's two rows but what eviction alone uses (`held`, the last use)."""
    digest = _STATE.copy()
    name = b"" if state.name is None else b"n" + encoded_name(state.name)
    numbers = (state.number, state.keep_text, state.revision, state.sequence)
    digest.update(struct.pack("<7Q", *numbers, state.tokens, state.text_bytes, state.code_points))
    for part in (name, state.fingerprint.encode(), state.open_text, state.tail_text, state.tail_ids):
        digest.update(struct.pack("<Q", len(part)))
        digest.update(part)
    digest.update(state.ids_digest + state.text_chain)
    return digest.digest()


def encoded_name(name: str) -> bytes:
    """Any string is a name: lone surrogates and NUL, too."""
    return name.encode("utf-8", "surrogatepass")
