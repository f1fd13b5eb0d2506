"""The store of sessions in Redis or Valkey, for several hosts: the contract of docs/redis-store.md.

It does what `toktier.sessions.store` does in a file, with the same digests, seals and refusals. Not here: how a text is
encoded and where it may be cut; whoever appends knows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from toktier.errors import SessionRevisionConflict
from toktier.sessions import changes
from toktier.sessions.chains import Damage, prove_text
from toktier.sessions.presented import Counters
from toktier.sessions.protocol import Column, Session, Store
from toktier.sessions.records import Append, CommitPoint, Finding, Prefix, SessionInfo, SessionState
from toktier.sessions.redis_lookup import RedisLookup
from toktier.sessions.redis_server import Server
from toktier.sessions.redis_sessions import Sessions, first_after
from toktier.sessions.redis_upkeep import Upkeep
from toktier.sessions.redis_url import namespace as checked_namespace
from toktier.sessions.redis_values import (
    COSTS,
    Held,
    Keys,
    anonymous,
    held,
    named,
    numbers,
    points_of,
    proven_ids,
    session_of,
    stored_text,
)

BUDGET_BYTES = 256 << 20
TIMEOUT_SECONDS = 1.0
NAMESPACE = "toktier"


class RedisStore:
    """A store on a server, for any number of threads, processes and hosts."""

    def __init__(
        self,
        url: str,
        *,
        budget_bytes: int = BUDGET_BYTES,
        timeout: float = TIMEOUT_SECONDS,
        namespace: str = NAMESPACE,
    ) -> None:
        """`budget_bytes` bounds the anonymous sessions of the namespace; `timeout`: seconds to wait for an answer.

        Nothing is connected yet: a server that is down makes look-ups miss, and named sessions BACKEND_UNAVAILABLE.
        """
        self.budget_bytes = budget_bytes
        server = Server(url, timeout)
        self._sessions = Sessions(server, Keys(checked_namespace(namespace)))
        self._upkeep = Upkeep(self._sessions)
        self._lookup = RedisLookup(self._sessions, self._upkeep)

    def __repr__(self) -> str:
        return f"RedisStore({self._sessions.server.where!r})"

    @property
    def counters(self) -> Counters:
        return self._lookup.counters

    def open(self, name: str, fingerprint: str, *, keep_text: bool = False) -> RedisSession:
        """The named session, made where there is none (`keep_text` is of that moment). Reads no history."""
        with _guarded(self._sessions):
            one = self._sessions.named(name)
            if one is None:
                made = changes.started(numbers.new(), name, fingerprint, keep_text)
                one = self._sessions.make_named(name, made) or self._sessions.named(name)
            if one is None:
                raise changes.conflict(0, None)  # made and removed by others in this moment
        changes.expect_fingerprint(one.state, name, fingerprint)
        return RedisSession(self._sessions, one)

    def remember(self, fingerprint: str, appends: Sequence[Append]) -> int | None:
        """An anonymous session, for look-ups; gives its number, or None where it alone exceeds the budget.

        Each append is a point at which a look-up can end. Expected revisions are 0, 1, 2 …
        """
        state = base = changes.started(numbers.new(), None, fingerprint, False)
        steps: list[changes.Step] = []
        for append in appends:
            changes.expect(append, state.revision)
            state, added = changes.applied(state, (append,), COSTS)
            steps += added
        if state.held > self.budget_bytes:
            return None
        new = held(state, first_after(b"", base, steps))
        with self._lookup.unless_paused(), _guarded(self._sessions):
            # Listed before it is there: what nobody lists, nobody would evict.
            victims = self._upkeep.admit(new, self.budget_bytes)
            self._sessions.write(None, new, steps, 0)
            if not self._upkeep.is_listed(new):  # somebody evicted it before it was there
                victims += self._upkeep.admit(new, self.budget_bytes)
            self._upkeep.forget(victims)
        return state.number

    def extend(self, prefix: Prefix, appends: Sequence[Append]) -> bool:
        """Adds to the anonymous session that ends where `prefix` does; False, and nothing is written, where the session
        is a named one, has grown or is gone. Expected revisions do not count."""
        with self._lookup.unless_paused(), _guarded(self._sessions):
            one = self._sessions.read(anonymous(prefix.session))
            if one is None or one.state.name is not None or one.state.ids_digest != prefix.ids_digest:
                return False
            state, steps = changes.applied(one.state, appends, COSTS)
            new = held(state, first_after(one.first, one.state, steps))
            try:
                self._sessions.write(one, new, steps, one.state.sequence)
            except SessionRevisionConflict:
                return False
            self._upkeep.forget(self._upkeep.admit(new, self.budget_bytes))
        return True

    def longest_prefix(self, text: str | bytes, fingerprint: str) -> Prefix | None:
        """The longest stored prefix that ends at a commit point, verified over `text`; None: nothing, or a miss."""
        return self._lookup.longest_prefix(changes.encoded(text), fingerprint)

    def evict(self, budget_bytes: int | None = None) -> list[int]:
        """Numbers of the anonymous sessions that went for the rest to fit."""
        victims = self._upkeep.victims(self.budget_bytes if budget_bytes is None else budget_bytes)
        self._upkeep.forget(victims)
        return [int.from_bytes(victim, "big") for victim in victims]

    def compact(self) -> int:
        """0: a server keeps small steps packed, and gives space back by itself."""
        return 0

    def sessions(self) -> list[SessionInfo]:
        with _guarded(self._sessions):
            return self._upkeep.infos()

    def show(self, name: str) -> SessionInfo | None:
        with _guarded(self._sessions):
            return self._upkeep.info(named(name), name)

    def remove(self, name: str) -> bool:
        """Also a damaged session. Whoever still has it open gets SESSION_REVISION_CONFLICT."""
        with _guarded(self._sessions):
            return self._upkeep.remove_named(name)

    def verify(self, name: str | None = None) -> list[Finding]:
        """What does not hold: of one session, or of the whole store. Nothing of a name that is not there."""
        return self._upkeep.verify() if name is None else self._upkeep.verify_named(name)

    def close(self) -> None:
        self._sessions.server.close()

    def __enter__(self) -> RedisStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RedisSession:
    """A named session as this process last saw it. `state` is all that is held of it: no history.

    Threads need no lock: of two that append at once one gets SESSION_REVISION_CONFLICT.
    """

    def __init__(self, sessions: Sessions, one: Held) -> None:
        self._sessions = sessions
        self._held = one

    @property
    def state(self) -> SessionState:
        return self._held.state

    def append(self, *appends: Append) -> int:
        """The new revision: one, however many changes. Each but the last is there to end at a commit point of its own.

        Raises SESSION_REVISION_CONFLICT where somebody else wrote, and nothing is written.
        """
        one = self._held
        changes.expect(appends[0], one.state.revision)
        return self._write(one, one.state, appends)

    def replace(self, point: CommitPoint, *appends: Append, before: bytes | None = None) -> int:
        """Drops all after `point` and appends, as one revision. `before`: committed text that ends at the point, at
        least its last 1,023 bytes; needed unless the point is the end, the beginning, or the text is kept."""
        one = self._held
        changes.expect(appends[0], one.state.revision)
        base = one.state
        if point.sequence < base.sequence:
            with self._guarded():
                base = self._sessions.cut(one, point, before)
        else:
            changes.expect_end(base, point)
        return self._write(one, base, appends)

    def _write(self, one: Held, base: SessionState, appends: Sequence[Append]) -> int:
        state, steps = changes.applied(base, appends, COSTS)
        new = held(state, first_after(one.first, base, steps))
        with self._guarded():
            self._sessions.write(one, new, steps, base.sequence)
        self._held = new
        return state.revision

    def refresh(self) -> SessionState:
        """The state as it is in the store now. Raises SESSION_REVISION_CONFLICT when the session is gone."""
        with self._guarded():
            found = self._sessions.read(session_of(self.state))
        if found is None or not changes.is_same_session(found.state, self.state):
            raise changes.conflict(self.state.revision, None)
        self._held = found
        return found.state

    def last_point(self, column: Column, at_most: int) -> CommitPoint:
        """The last commit point with at most so many tokens, bytes or code points; the beginning is one."""
        with self._guarded():
            return self._sessions.last_at_most(self._held, column, at_most)[0]

    def ids(self) -> bytes:
        """All committed ids, little-endian uint32, proven by their chain."""
        one = self._held
        with self._guarded():
            return proven_ids(one.state, self._sessions.steps(one, 0, one.state.sequence))

    def points(self) -> list[CommitPoint]:
        """All commit points but the beginning, proven by their chain."""
        one = self._held
        with self._guarded():
            steps = self._sessions.steps(one, 0, one.state.sequence)
            proven_ids(one.state, steps)
        return points_of(steps)

    def text(self) -> bytes:
        """All committed text. Raises SESSION_NEEDS_TEXT where none is kept."""
        one = self._held
        changes.expect_kept_text(one.state)
        with self._guarded():
            steps = self._sessions.steps(one, 0, one.state.sequence)
            text = stored_text(steps)
            prove_text(one.state, text)
        return text

    def _guarded(self) -> contextlib.AbstractContextManager[None]:
        return _guarded(self._sessions, self.state.number)


@contextlib.contextmanager
def _guarded(sessions: Sessions, session: int | None = None) -> Iterator[None]:
    """Damage as STORE_CORRUPT, of that session where one is known."""
    try:
        yield
    except Damage as damage:
        raise sessions.server.corrupt(str(damage), session) from None


if TYPE_CHECKING:
    _store: type[Store] = RedisStore
    _session: type[Session] = RedisSession
