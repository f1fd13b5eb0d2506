"""Keys and values of a Redis store, as bytes: states, steps, entries of the look-up. Format 1.

All numbers are little-endian uint64 unless said otherwise. Not here: commands and scripts; nothing asks a server.
"""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toktier.errors import StoreFormatUnsupported
from toktier.sessions import chains, changes
from toktier.sessions.records import CommitPoint, SessionState

FORMAT = 1
MAGIC = b"tkse"
MARK_KEY = 8  # bytes of the chain at a mark that entries are found by; what they find is verified
# Of a step: its numbers, digests and place in a list; of a mark: its place in a list and in the sorted set of entries.
COSTS = changes.Costs(step=160, mark=160)

_HEAD = struct.Struct("<4sIQQ8s")  # magic, format, number, revision, writer
_BODY = struct.Struct("<QQQQQQB8s32s32s")
HEAD_BYTES = _HEAD.size
LAST_USE_AT = HEAD_BYTES
IDENTITY_BYTES = 16  # of the head: magic, format, number
_SEAL_BYTES = 32
_LENGTH = struct.Struct("<I")
_ABSENT = 2**32 - 1  # length of the name of an anonymous session

STEP_HEAD = struct.Struct("<QQQQ32s32s32sII")
COLUMN_AT = {"tokens": 0, "text_bytes": 8, "code_points": 16}
_POINT = struct.Struct("<4s8s")  # of an entry: number of the mark (big-endian: in order), chain

_EPOCH_MILLISECONDS = 1_577_836_800_000  # 2020: numbers stay below 2**53, exact in every JSON reader, until 2054
_RANDOM_BITS = 13


@dataclass(frozen=True, slots=True)
class Held:
    """A state as it lies in the store. `writer` is drawn anew by each write, so that a write is told from another of
    the same revision; `first` begins the chain at the first mark, which names the key of the look-up's entries."""

    state: SessionState
    writer: bytes
    first: bytes
    last_use: int

    @property
    def head(self) -> bytes:
        return _HEAD.pack(MAGIC, FORMAT, self.state.number, self.state.revision, self.writer)

    @property
    def marks(self) -> int:
        return self.state.text_bytes // chains.MARK


class StoredStep(NamedTuple):
    """A step as it lies in the store; `text_held`: bytes of stored text up to it. Plain: a session has thousands."""

    tokens: int
    text_bytes: int
    code_points: int
    text_held: int
    ids_digest: bytes
    text_chain: bytes
    text_digest: bytes
    ids: bytes
    text: bytes

    def point(self, sequence: int) -> CommitPoint:
        return CommitPoint(
            *(sequence, self.tokens, self.text_bytes, self.code_points),
            *(self.ids_digest, self.text_chain, self.text_digest),
        )


class Numbers:
    """Numbers of sessions: later ones are greater, on all hosts but for their clocks, and nobody has to be asked."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        self._lock = threading.Lock()

    def new(self) -> int:
        milliseconds = max(0, time.time_ns() // 1_000_000 - _EPOCH_MILLISECONDS)
        with self._lock:
            drawn = (milliseconds << _RANDOM_BITS) | random.SystemRandom().getrandbits(_RANDOM_BITS)
            self._last = max(self._last + 1, drawn)
            return self._last


numbers = Numbers()


class Keys:
    """Names of keys. All of a session have one hash tag, and so one slot of a cluster."""

    def __init__(self, namespace: str) -> None:
        self.prefix = f"{namespace}:"
        self.names = f"{namespace}:{{sessions}}:names"  # key of a name -> name
        self.uses = f"{namespace}:{{sessions}}:uses"  # anonymous sessions by their last use
        self.sizes = f"{namespace}:{{sessions}}:sizes"  # bytes that each of them holds, and their total

    def state(self, session: bytes) -> str:
        return f"{self.prefix}{{{shown(session)}}}:state"

    def steps(self, session: bytes) -> str:
        return f"{self.prefix}{{{shown(session)}}}:steps"

    def marks(self, session: bytes) -> str:
        return f"{self.prefix}{{{shown(session)}}}:marks"

    def entries(self, first: bytes) -> str:
        return f"{self.prefix}{{{first.hex()}}}:entries"

    def part_of(self, key: bytes) -> tuple[str, bytes] | None:
        """(part, session or first mark) of a key: what `entries`, `state` and so on gave. None: another key."""
        pieces = key.decode("ascii", "replace").removeprefix(self.prefix).split(":")
        if len(pieces) != 2 or not pieces[0].startswith("{") or not pieces[0].endswith("}"):
            return None
        inner = pieces[0][1:-1]
        try:
            if pieces[1] == "entries":
                return "entries", bytes.fromhex(inner)
            if pieces[1] in ("state", "steps", "marks") and inner[:1] in ("a", "n"):
                return pieces[1], inner[:1].encode() + bytes.fromhex(inner[1:])
        except ValueError:
            pass
        return None


def shown(session: bytes) -> str:
    return session[:1].decode() + session[1:].hex()


def named(name: str) -> bytes:
    """The session of a name, whatever its number is: what its keys are made of."""
    return b"n" + chains.name_key(chains.encoded_name(name))


def anonymous(number: int) -> bytes:
    return b"a" + struct.pack(">Q", number)


def session_of(state: SessionState) -> bytes:
    return anonymous(state.number) if state.name is None else named(state.name)


def mark_key(chain: bytes) -> bytes:
    return chain[:MARK_KEY]


def entry(mark: int, key: bytes, session: bytes) -> bytes:
    return struct.pack(">I", mark) + key + session


def split_entry(member: bytes) -> tuple[int, bytes, bytes]:
    return int.from_bytes(member[:4], "big"), member[4 : 4 + MARK_KEY], member[4 + MARK_KEY :]


def held(state: SessionState, first: bytes, last_use: int | None = None) -> Held:
    """A state that is to be written, with a writer of its own."""
    return Held(state, os.urandom(8), first, time.time_ns() if last_use is None else last_use)


def packed(one: Held) -> bytes:
    state = one.state
    body = _BODY.pack(
        *(one.last_use, min(state.held, 2**63), state.sequence, state.tokens, state.text_bytes, state.code_points),
        *(state.keep_text, one.first, state.ids_digest, state.text_chain),
    )
    name = None if state.name is None else chains.encoded_name(state.name)
    parts = (state.fingerprint.encode(), state.open_text, state.tail_text, state.tail_ids)
    lengths = b"".join(_LENGTH.pack(_ABSENT if part is None else len(part)) for part in (name, *parts))
    return b"".join((one.head, body, lengths, name or b"", *parts, chains.seal(state)))


def head_of(value: bytes) -> tuple[int, int] | None:
    """(number, revision) of the beginning of a state, without verification; None: it is none."""
    if len(value) < HEAD_BYTES:
        return None
    magic, form, number, revision, _ = _HEAD.unpack_from(value)
    return (number, revision) if (magic, form) == (MAGIC, FORMAT) else None


def unpacked(value: bytes, where: str) -> Held:
    """The state of a value whose seal holds. Raises STORE_FORMAT_UNSUPPORTED for what is none of this format."""
    if value[:4] != MAGIC:
        raise foreign(where)
    try:
        _, form, number, revision, writer = _HEAD.unpack_from(value)
        if form != FORMAT:
            raise StoreFormatUnsupported(
                f"a session in {where} has format {form}: this version reads {FORMAT}",
                details={"server": where, "found": form, "expected": FORMAT},
                remedy="use the version of toktier that wrote it, or give the store another namespace",
            )
        last_use, size, *counts, keep_text, first, ids_digest, text_chain = _BODY.unpack_from(value, HEAD_BYTES)
        at = HEAD_BYTES + _BODY.size
        lengths = struct.unpack_from("<5I", value, at)
        at += 20
        parts: list[bytes] = []
        for length in lengths:
            size_here = 0 if length == _ABSENT and not parts else length
            parts.append(value[at : at + size_here])
            at += size_here
        if at + _SEAL_BYTES != len(value) or keep_text > 1:
            raise chains.Damage("a state holds what no state is")
        name = None if lengths[0] == _ABSENT else parts[0].decode("utf-8", "surrogatepass")
        sequence, tokens, text_bytes, code_points = counts
        state = SessionState(
            *(number, name, parts[1].decode(), bool(keep_text), revision, sequence, tokens, text_bytes, code_points),
            *(ids_digest, text_chain, parts[2], parts[3], parts[4], size),
        )
        if chains.seal(state) != value[at:]:
            raise chains.Damage("the seal of a state does not hold")
    except (struct.error, UnicodeDecodeError):
        raise chains.Damage("a state holds what no state is") from None
    return Held(state, writer, first if state.text_bytes >= chains.MARK else b"", last_use)


def foreign(where: str) -> StoreFormatUnsupported:
    return StoreFormatUnsupported(
        f"a key of {where} that a session would have holds something else",
        details={"server": where, "found": None, "expected": FORMAT},
        remedy="give the store another namespace, or remove that key",
    )


def text_held(state: SessionState) -> int:
    """Bytes of text that are stored for a state, by what it holds in all."""
    rest = 4 * state.tokens + state.sequence * COSTS.step + state.text_bytes // chains.MARK * COSTS.mark
    return max(0, state.held - rest)


def held_at(point: CommitPoint, text: int) -> int:
    """What a session holds that ends at a point, with so many bytes of text stored."""
    return 4 * point.tokens + point.sequence * COSTS.step + point.text_bytes // chains.MARK * COSTS.mark + text


def packed_steps(steps: Iterable[changes.Step], text: int) -> list[bytes]:
    """Values of steps after so many bytes of stored text."""
    values = []
    for step in steps:
        point = step.point
        text += len(step.text)
        head = STEP_HEAD.pack(
            *(point.tokens, point.text_bytes, point.code_points, min(text, 2**63)),
            *(point.ids_digest, point.text_chain, point.text_digest, len(step.ids), len(step.text)),
        )
        values.append(head + step.ids + step.text)
    return values


def unpacked_heads(heads: bytes, last: int) -> list[tuple[CommitPoint, int]]:
    """(point, bytes of stored text up to it) of steps without ids and text, in falling order from `last`."""
    if len(heads) % STEP_HEAD.size:
        raise chains.Damage("a step holds what no step is")
    return [
        (CommitPoint(last - k, tokens, size, code_points, ids_digest, chain, digest), text)
        for k, (tokens, size, code_points, text, ids_digest, chain, digest, _, _) in enumerate(
            STEP_HEAD.iter_unpack(heads)
        )
    ]


def unpacked_step(value: bytes) -> StoredStep:
    try:
        tokens, size, code_points, held_text, ids_digest, chain, digest, ids, text = STEP_HEAD.unpack_from(value)
    except struct.error:
        raise chains.Damage("a step holds what no step is") from None
    end = STEP_HEAD.size + ids
    if end + text != len(value):
        raise chains.Damage("a step holds what no step is")
    some, rest = value[STEP_HEAD.size : end], value[end:]
    return StoredStep(tokens, size, code_points, held_text, ids_digest, chain, digest, some, rest)


def points_of(steps: Sequence[StoredStep]) -> list[CommitPoint]:
    """Of steps from the first."""
    return [step.point(k) for k, step in enumerate(steps, 1)]


def stored_text(steps: Sequence[StoredStep]) -> bytes:
    return b"".join([changes.inflated(step.text) for step in steps if step.text])


def proven_ids(state: SessionState, steps: Sequence[StoredStep]) -> bytes:
    """Ids of all steps from the first, proven by their chain; of all there are: by the state, too."""
    ids = b"".join([step.ids for step in steps])
    chains.prove_ids(state.fingerprint, [(s.tokens, s.text_digest, s.ids_digest) for s in steps], ids)
    if len(ids) != (4 * steps[-1].tokens if steps else 0):
        raise chains.Damage("the ids of a session are not all there")
    if len(steps) == state.sequence:
        last = steps[-1].point(len(steps)) if steps else chains.start(state.fingerprint)
        chains.prove_last(state, last)
    return ids
