"""Sessions of a Redis store: read, made, written by compare-and-set, dropped.

What is expected of a session is the beginning of its state: number, revision and writer. So neither a session made anew
nor another history of equal length, as a server that lost its last second leaves behind, is taken for the one that was
read. Not here: look-ups, eviction, verification.
"""

from __future__ import annotations

from collections.abc import Sequence

from toktier.errors import EnvironmentFault, SessionRevisionConflict
from toktier.sessions import changes
from toktier.sessions.chains import MARK, Damage, start
from toktier.sessions.records import CommitPoint, SessionState
from toktier.sessions.redis_scripts import CONFLICT, DAMAGED, DONE, DROP, FOREIGN, LOCATE, WRITE
from toktier.sessions.redis_server import Server
from toktier.sessions.redis_values import (
    COLUMN_AT,
    HEAD_BYTES,
    STEP_HEAD,
    Held,
    Keys,
    StoredStep,
    entry,
    foreign,
    head_of,
    held,
    held_at,
    mark_key,
    named,
    packed,
    packed_steps,
    session_of,
    stored_text,
    text_held,
    unpacked,
    unpacked_heads,
    unpacked_step,
)

READ_STEPS = 4096  # in one answer: what a server does in one go
LARGEST_BYTES = 500 << 20  # a server takes 512 MiB in one value, unless it is told otherwise
_EXACT = 2**53  # Lua's numbers are doubles


class Sessions:
    """What a store and its sessions share: the server and the names of keys."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self.server = server
        self.keys = keys

    def named(self, name: str) -> Held | None:
        """The session of a name; None: there is none."""
        session = named(name)
        listed, value = self._listed_and_state(session)
        if value is None:
            return None
        one = unpacked(value, self.server.where)
        if one.state.name != name:
            raise Damage("a session has another name than its key")
        if not listed:  # whoever made it ended before the list knew, or lost it to a removal at the same moment
            self._list(session, name)
        return one

    def _listed_and_state(self, session: bytes) -> tuple[bool, bytes | None]:
        listed, value = self.server.many([("HEXISTS", self.keys.names, session[1:]), ("GET", self.keys.state(session))])
        if isinstance(value, Damage):
            raise foreign(self.server.where)
        return bool(listed), value

    def _list(self, session: bytes, name: str) -> None:
        self.server.call("HSET", self.keys.names, session[1:], name.encode("utf-8", "surrogatepass"))

    def read(self, session: bytes) -> Held | None:
        value = self.server.call("GET", self.keys.state(session))
        return None if value is None else unpacked(value, self.server.where)

    def make_named(self, name: str, state: SessionState) -> Held | None:
        """None where somebody else was first. The list knows it before it is there, so that it is never unlisted."""
        self._list(named(name), name)
        one = held(state, b"")
        try:
            self.write(None, one, [], 0)
        except SessionRevisionConflict:
            return None
        return one

    def write(self, before: Held | None, after: Held, steps: Sequence[changes.Step], kept: int) -> None:
        """`steps` after `kept` of those before, as one revision. Raises SESSION_REVISION_CONFLICT, and nothing is
        written, unless the session is as `before` says (None: not there)."""
        session = session_of(after.state)
        base = None if before is None else before.state
        text = max(0, text_held(after.state) - sum(len(step.text) for step in steps))
        marks = [mark_key(chain) for step in steps for _, chain in step.marks]
        marks_before = 0 if before is None else before.marks
        kept_marks = after.marks - len(marks)
        keys = [self.keys.state(session), self.keys.steps(session), self.keys.marks(session)]
        drop_from = add_to = 0
        if not self.server.cluster:
            if before is not None and kept_marks < marks_before:
                keys.append(self.keys.entries(before.first))
                drop_from = len(keys)
            if marks:
                keys.append(self.keys.entries(after.first))
                add_to = len(keys)
        values = packed_steps(steps, text)
        self._expect_size(values)
        answer = self.server.answer(
            WRITE,
            keys,
            b"" if before is None else before.head,
            *(0 if base is None else base.sequence, marks_before, kept, kept_marks, session, drop_from, add_to),
            packed(after),
            *(len(values), *values, *marks),
        )
        code, *dropped = answer.value
        if code == CONFLICT and dropped[0] == after.head:
            dropped = []  # the answer was lost with its connection, and the second try met what the first had written
        elif code == CONFLICT:
            raise self._conflict(before, dropped[0], answer.repeated)
        elif code == DAMAGED:
            raise Damage("steps or marks are missing, or more than there should be")
        if self.server.cluster:  # other slots: entries that are missing or stale cost a miss at most
            if before is not None:
                self.drop_entries(before.first, session, kept_marks, dropped)
            self._add_entries(after.first, session, kept_marks, marks)

    def _expect_size(self, values: Sequence[bytes]) -> None:
        largest = max(map(len, values), default=0)
        if largest > LARGEST_BYTES:
            raise EnvironmentFault(
                f"a step of {largest:,} bytes is more than the store {self.server.where} takes: {LARGEST_BYTES:,}",
                details={"server": self.server.where, "bytes": largest, "most": LARGEST_BYTES},
                remedy="append it in parts, each ending at a commit point",
            )

    def _conflict(self, before: Held | None, found: bytes, repeated: bool) -> SessionRevisionConflict:
        expected = before.state if before is not None else None
        error = self.conflict_of(expected, found)
        if repeated:
            error.message += "; the connection was lost meanwhile, and the change may be among what was written"
        return error

    def conflict_of(self, expected: SessionState | None, found: bytes) -> SessionRevisionConflict:
        """By the beginning of the state that was found instead."""
        head = head_of(found)
        if found and head is None:
            raise Damage("a state holds what no state is")
        if expected is None:
            return changes.conflict(0, None if head is None else head[1])
        same = head is not None and head[0] == expected.number
        return changes.conflict(expected.revision, head[1] if same and head is not None else None)

    def _add_entries(self, first: bytes, session: bytes, before: int, marks: Sequence[bytes]) -> None:
        members = [entry(before + k, mark, session) for k, mark in enumerate(marks, 1)]
        for at in range(0, len(members), 500):
            pairs = [part for member in members[at : at + 500] for part in (0, member)]
            self.server.call("ZADD", self.keys.entries(first), *pairs)

    def drop_entries(self, first: bytes, session: bytes, before: int, marks: Sequence[bytes]) -> None:
        members = [entry(before + k, mark, session) for k, mark in enumerate(marks, 1)]
        for at in range(0, len(members), 500):
            self.server.call("ZREM", self.keys.entries(first), *members[at : at + 500])

    def drop(self, session: bytes, *, listed: bool) -> bool:
        """Removes all of a session but its place in the lists, and whatever of it is damaged, too; gives whether there
        was any. Of what was never listed only what begins as a session does: other keys are not ours to remove."""
        keys = [self.keys.state(session), self.keys.steps(session), self.keys.marks(session)]
        code, *rest = self.server.run(DROP, keys, int(listed))
        if code == FOREIGN:
            raise foreign(self.server.where)
        count, *marks = rest
        if marks:
            self.drop_entries(marks[0], session, 0, marks)
        return bool(count)

    def steps(self, one: Held, after: int, last: int) -> list[StoredStep]:
        """Steps after the point `after` up to `last`, of a session that is as it was; else a conflict.

        By plain commands, which cost a server a tenth of what a script costs it that hands on so much. Each write draws
        a writer: where the state begins as it did, nobody wrote before what was read.
        """
        session = session_of(one.state)
        state, steps = self.keys.state(session), self.keys.steps(session)
        values: list[bytes] = []
        for at in range(after, max(last, after + 1), READ_STEPS):
            end = min(at + READ_STEPS, last) - 1
            some, head = self.server.many([("LRANGE", steps, at, end), ("GETRANGE", state, 0, HEAD_BYTES - 1)])
            for damage in (some, head):
                if isinstance(damage, Damage):
                    raise damage
            if head != one.head:
                raise self.conflict_of(one.state, head)
            if last > after:
                values += some
        if len(values) != last - after:
            raise Damage("steps are missing, or more than there should be")
        return [unpacked_step(value) for value in values]

    def last_at_most(self, one: Held, column: str, value: int) -> tuple[CommitPoint, int]:
        """The last point whose column (or `sequence`) is at most `value`, and the bytes of text stored up to it."""
        session = session_of(one.state)
        keys = (self.keys.state(session), self.keys.steps(session))
        code, *rest = self.server.run(LOCATE, keys, one.head, *located(column, value, 1))
        if code == CONFLICT:
            raise self.conflict_of(one.state, rest[0])
        if code != DONE or rest[1] != one.state.sequence:
            raise Damage("steps are missing, or more than there should be")
        heads = unpacked_heads(rest[3], rest[2])
        if not heads and rest[2]:
            raise Damage("a step is missing")
        return heads[0] if heads else (start(one.state.fingerprint), 0)

    def cut(self, one: Held, point: CommitPoint, before: bytes | None) -> SessionState:
        """The state with all after `point` dropped, which is not written yet."""
        state = one.state
        found, text = self.last_at_most(one, "sequence", point.sequence)
        if found != point:
            raise changes.foreign_point(state)

        def kept(size: int) -> bytes:
            after, _ = self.last_at_most(one, "text_bytes", point.text_bytes - size)
            steps = self.steps(one, after.sequence, point.sequence)
            return stored_text(steps)[-size:]

        open_text = changes.open_text_at(state, point, before, kept)
        return changes.cut(state, point, open_text, held_at(point, text))


def first_after(before: bytes, base: SessionState, steps: Sequence[changes.Step]) -> bytes:
    """What names the entries of a session after `base` and `steps`: the chain at its first mark; b"": it has none."""
    if base.text_bytes >= MARK:
        return before
    return next((mark_key(chain) for step in steps for _, chain in step.marks), b"")


def located(column: str, value: int, count: int) -> tuple[object, ...]:
    """Arguments of LOCATE after the head."""
    place: object = "sequence" if column == "sequence" else COLUMN_AT[column]
    return place, max(-1, min(value, _EXACT)), count, STEP_HEAD.size
