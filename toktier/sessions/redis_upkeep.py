"""What keeps a Redis store small and shows that it is whole: eviction, lists, removal, verification.

The lists of sessions and the entries of look-ups lie in other slots of a cluster than the sessions, so they are hints:
a session is listed before it is there and until it is gone, and an entry that is of no session costs a miss.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from toktier.errors import SessionRevisionConflict, StoreFormatUnsupported
from toktier.sessions.chains import Damage, prove_points, prove_text
from toktier.sessions.records import Finding, SessionInfo
from toktier.sessions.redis_scripts import ADMIT, FORGET, VICTIMS
from toktier.sessions.redis_sessions import Sessions
from toktier.sessions.redis_values import (
    Held,
    entry,
    head_of,
    held_at,
    mark_key,
    named,
    points_of,
    proven_ids,
    session_of,
    split_entry,
    stored_text,
    unpacked,
)

TRIES = 5  # to read a session that others write to
PAGE = 1000


class Upkeep:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._server = sessions.server
        self._keys = sessions.keys
        self._lists = (sessions.keys.uses, sessions.keys.sizes)

    def admit(self, new: Held, budget_bytes: int) -> list[bytes]:
        """Lists an anonymous session; gives those that have to go for it."""
        listed = session_of(new.state)[1:]
        found: list[bytes] = self._server.run(
            ADMIT, self._lists, listed, new.state.held, new.last_use, max(0, budget_bytes)
        )
        return found

    def victims(self, budget_bytes: int) -> list[bytes]:
        """The least recently used anonymous sessions, until the rest fits. Named ones are in no such list."""
        found: list[bytes] = self._server.run(VICTIMS, self._lists, budget_bytes)
        return found

    def forget(self, numbers: Sequence[bytes]) -> None:
        """Removes anonymous sessions: listed until they are gone, so that whoever comes next finds what is left. And
        once more: one that was listed and not there may have been written in between."""
        for number in numbers:
            self._sessions.drop(b"a" + number, listed=True)
        for at in range(0, len(numbers), PAGE):
            self._server.run(FORGET, self._lists, *numbers[at : at + PAGE])
        for number in numbers:
            self._sessions.drop(b"a" + number, listed=True)

    def is_listed(self, one: Held) -> bool:
        return self._is_listed(session_of(one.state))

    def remove_named(self, name: str) -> bool:
        session = named(name)
        listed = bool(self._server.call("HEXISTS", self._keys.names, session[1:]))
        there = self._sessions.drop(session, listed=listed)
        if listed:
            self._server.call("HDEL", self._keys.names, session[1:])
        return there or listed

    def infos(self) -> list[SessionInfo]:
        """Without verification: what is listed must be listable when it is damaged."""
        listed = list(self._listed())
        values = self._server.many([("GET", self._keys.state(session)) for session, _ in listed])
        uses = self._server.many([("ZSCORE", self._keys.uses, session[1:]) for session, name in listed if name is None])
        infos = []
        used = iter(uses)
        for (session, name), value in zip(listed, values, strict=True):
            last_use = next(used) if name is None else None
            if value is not None:
                infos.append(_info(session, name, value, last_use, self._server.where))
        return sorted(infos, key=lambda info: info.number)

    def info(self, session: bytes, name: str) -> SessionInfo | None:
        (value,) = self._server.many([("GET", self._keys.state(session))])
        return None if value is None else _info(session, name, value, None, self._server.where)

    def _listed(self) -> Iterator[tuple[bytes, str | None]]:
        """(session, name) of all; the list, not the state, says what is named."""
        for key, name in self._server.call("HGETALL", self._keys.names).items():
            yield b"n" + key, _decoded(name)
        for number in self._server.call("ZRANGE", self._keys.uses, 0, -1):
            yield b"a" + number, None

    def verify_named(self, name: str) -> list[Finding]:
        session = named(name)
        listed, there = self._server.many(
            [("HEXISTS", self._keys.names, session[1:]), ("EXISTS", self._keys.state(session))]
        )
        if not listed and not there:
            return []
        found = self._verify(session, name)
        return [] if found is None else [found]

    def verify(self) -> list[Finding]:
        """All that does not hold; it reads everything and changes nothing."""
        findings: list[Finding] = []
        known: set[bytes] = set()
        for session, name in self._listed():
            known.add(session)
            found = self._verify(session, name)
            if found is not None:
                findings.append(found)
        return findings + self._strays(known)

    def _verify(self, session: bytes, name: str | None) -> Finding | None:
        number: int | None = None
        for _ in range(TRIES):
            one: Held | None = None
            try:
                one = self._sessions.read(session)
                if one is None:
                    return self._absent(session, name)
                number = one.state.number
                self._prove(session, name, one)
            except SessionRevisionConflict:
                continue
            except (Damage, StoreFormatUnsupported) as damage:
                if one is not None and self._changed(one):
                    continue
                return Finding(number or _number(session), str(damage))
            return None
        return Finding(number, "a session is written so often that it could not be read whole")

    def _changed(self, one: Held) -> bool:
        (head,) = self._server.many([("GETRANGE", self._keys.state(session_of(one.state)), 0, 31)])
        return bool(head != one.head) and not isinstance(head, Damage)

    def _absent(self, session: bytes, name: str | None) -> Finding | None:
        parts = self._server.call("EXISTS", self._keys.steps(session), self._keys.marks(session))
        if parts:
            return Finding(_number(session), "a session has no state")
        if name is not None:
            return Finding(None, "a session that is listed is not there")
        return None  # whoever listed it has not written it yet, or never will: eviction takes it from the list

    def _prove(self, session: bytes, name: str | None, one: Held) -> None:
        state = one.state
        if session_of(state) != session or state.name != name:
            raise Damage("a session has another name than its key")
        steps = self._sessions.steps(one, 0, state.sequence)
        self._sessions.last_at_most(one, "sequence", state.sequence)
        proven_ids(state, steps)
        points = points_of(steps)
        text_bytes = list(itertools.accumulate(len(step.text) for step in steps))
        size = held_at(points[-1], text_bytes[-1]) if steps else 0
        if [step.text_held for step in steps] != text_bytes or size != state.held:
            raise Damage("a session holds other bytes than it says")
        marks: list[bytes] = self._server.call("LRANGE", self._keys.marks(session), 0, -1)
        if len(marks) != one.marks or (marks and marks[0] != one.first):
            raise Damage("marks of a session are missing, or more than there should be")
        entries = self._keys.entries(one.first)
        found = self._server.many([("ZSCORE", entries, entry(k, mark, session)) for k, mark in enumerate(marks, 1)])
        if any(score is None or isinstance(score, Damage) for score in found):
            raise Damage("entries of the look-up are missing")
        if state.keep_text:
            text = stored_text(steps)
            prove_text(state, text)
            expected = prove_points(state, points, text)
            if [mark_key(chain) for _, chain in expected] != marks:
                raise Damage("a mark of a session is of another text")

    def _strays(self, known: set[bytes]) -> list[Finding]:
        unlisted: set[bytes] = set()
        entries: list[bytes] = []
        for key in set(self._server.keys(self._keys.prefix)):
            part = self._keys.part_of(key)
            if part is None:
                continue
            if part[0] == "entries":
                entries.append(key)
            elif part[1] not in known and not self._is_listed(part[1]):
                unlisted.add(part[1])
        findings = [Finding(None, f"{len(unlisted):,} sessions are not listed")] if unlisted else []
        count = sum(self._stray_entries(key) for key in entries)
        if count:
            findings.append(Finding(None, f"{count:,} entries of the look-up are of no session"))
        return findings

    def _is_listed(self, session: bytes) -> bool:
        if session[:1] == b"n":
            return bool(self._server.call("HEXISTS", self._keys.names, session[1:]))
        return self._server.call("ZSCORE", self._keys.uses, session[1:]) is not None

    def _stray_entries(self, key: bytes) -> int:
        count = at = 0
        while True:
            try:
                members = self._server.call("ZRANGE", key, at, at + PAGE - 1)
            except Damage:
                return count + 1
            if not members:
                return count
            at += PAGE
            split = [split_entry(member) for member in members]
            marks = self._server.many([("LINDEX", self._keys.marks(s), mark - 1) for mark, _, s in split])
            count += sum(found != mark for found, (_, mark, _) in zip(marks, split, strict=True))


def _decoded(name: bytes) -> str:
    try:
        return name.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return name.decode("utf-8", "backslashreplace")  # damaged: verification says that its key is another


def _number(session: bytes) -> int | None:
    return int.from_bytes(session[1:], "big") if session[:1] == b"a" else None


def _info(session: bytes, name: str | None, value: bytes | Damage, last_use: float | None, where: str) -> SessionInfo:
    """Of a damaged state: what its list and its beginning say."""
    try:
        if isinstance(value, Damage):
            raise value
        one = unpacked(value, where)
    except (Damage, StoreFormatUnsupported):
        head = None if isinstance(value, Damage) else head_of(value)
        number, revision = (_number(session) or 0, 0) if head is None else head
        return SessionInfo(number, name, "", False, revision, *(0,) * 7, 0.0)
    state = one.state
    return SessionInfo(
        *(state.number, name, state.fingerprint, state.keep_text, state.revision, state.sequence, state.tokens),
        *(state.text_bytes, state.code_points, len(state.tail_text), len(state.tail_ids) // 4, state.held),
        (one.last_use if last_use is None else max(last_use, one.last_use)) / 1e9,
    )
