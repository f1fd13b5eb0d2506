"""Counting checks: the backend against the reference, text by text, with a digest from which anyone can re-derive it.

A check has one outcome: agreed, mismatch, or routed: the reference answered inside the backend under test, which is
never agreement. Counts are named for what they are. The digest of a block is SHA-256 over the digest of every text and
the digest of the reference's ids for it (little-endian uint32), in order. Of a script of edits, the text after every
edit that changes it is such a text. Not here: shortening a failure (`minimise`).
"""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from toktier.certify.edit_scripts import Script, difference, play, to_rows

if TYPE_CHECKING:
    from toktier.certify.subject import Subject

MAX_FAILURES = 20  # different ones kept of one block; all are counted
WITH_SPECIALS_ONE_IN = 8  # texts that are also encoded with special tokens, by their digest


@dataclass(slots=True)
class Counts:
    """`documents`: texts; `utf8_bytes` and `code_points` of them, each text once; `ids`: of the reference, without
    special tokens; `checks`: comparisons, of texts and of anything else; `mismatches` and `routed` are checks too."""

    documents: int = 0
    utf8_bytes: int = 0
    code_points: int = 0
    ids: int = 0
    checks: int = 0
    mismatches: int = 0
    routed: int = 0

    def add(self, other: Counts) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    def to_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(slots=True)
class Tally:
    """The counts of one block of one suite."""

    subject: Subject
    suite: str
    block: int
    counts: Counts = field(default_factory=Counts)
    failures: list[dict[str, Any]] = field(default_factory=list)
    _digest: Any = field(default_factory=hashlib.sha256)

    def text(self, text: str, with_specials: bool | None = None, plain: bool = False) -> bool:
        """Compares ids and, where the backend has them, offsets of one text, the ids where no offsets are asked for,
        and those at every other dispatch level of this CPU, in one check. `with_specials`: also with special tokens;
        None: one text in eight. `plain`: also with special tokens as ordinary text, where the backend can. True when
        all agreed."""
        encoded = text.encode("utf-8")
        text_digest = hashlib.sha256(encoded).digest()
        counts = self.counts
        counts.documents += 1
        counts.utf8_bytes += len(encoded)
        counts.code_points += len(text)
        expected = self.subject.expected(text)
        counts.ids += len(expected.ids)
        self._digest.update(text_digest)
        self._digest.update(hashlib.sha256(little_endian_ids(expected.ids)).digest())
        agreed = self._compare(text, expected, False, False)
        if with_specials or (with_specials is None and text_digest[0] % WITH_SPECIALS_ONE_IN == 0):
            expected = self.subject.expected(text, add_special_tokens=True)
            agreed = self._compare(text, expected, True, False) and agreed
        if plain and self.subject.takes_plain:
            expected = self.subject.expected(text, plain=True)
            agreed = self._compare(text, expected, False, True) and agreed
        return agreed

    def _compare(self, text: str, expected: Any, add_special_tokens: bool, plain: bool) -> bool:
        got = self.subject.encode(text, add_special_tokens, plain)
        self.counts.checks += 1
        if got.backend != self.subject.served_as:
            self.counts.routed += 1
            return False
        if got.ids != expected.ids:
            return self._differ("ids", text, add_special_tokens, plain)
        if self.subject.gives_offsets and got.offsets != expected.offsets:
            return self._differ("offsets", text, add_special_tokens, plain)
        bare = self.subject.encode_ids(text, add_special_tokens, plain)  # another path through the engine
        if bare.backend != self.subject.served_as:
            self.counts.routed += 1
            return False
        if bare.ids != expected.ids:
            return self._differ("ids without offsets", text, add_special_tokens, plain)
        for level, encoder in self.subject.other_levels:
            if encoder.encode(text, add_special_tokens, plain=plain) != bare:
                return self._differ(f"ids at level {level}", text, add_special_tokens, plain)
        return True

    def script(self, script: Script) -> bool:
        """Takes a session of the backend through a script: after every edit the ids, as the patches alone make them,
        and the lengths are those of the whole text, in one check; at the end the session's own ids are. What follows a
        difference is not looked at. True when all agreed."""
        session = self.subject.session
        if session is None:
            self.routed(len(script))
            return False
        calls = self.subject.tokenizer.native_calls[0]
        checked, counts = 0, self.counts
        text: str | None = None
        expected: list[int] = []
        for step in play(session, script):
            if step.text != text:
                text = step.text
                encoded = text.encode("utf-8")
                expected = self.subject.expected(text).ids
                counts.documents += 1
                counts.utf8_bytes += len(encoded)
                counts.code_points += len(text)
                counts.ids += len(expected)
                self._digest.update(hashlib.sha256(encoded).digest())
                self._digest.update(hashlib.sha256(little_endian_ids(expected)).digest())
            checked += 1
            what = difference(step, expected)
            if what is not None:
                counts.checks += checked
                counts.mismatches += 1
                self._keep({"what": what, "script": to_rows(script[: step.edit + 1])})
                return False
        if checked and self.subject.tokenizer.native_calls[0] == calls:
            self.routed(checked)  # no change of a session was counted by the engine
            return False
        self.counts.checks += checked
        return True

    def check(self, what: str, subject: str, got: Any, expected: Any) -> bool:
        """One comparison of something that is no text. `what` and `subject` name it; values are JSON-able."""
        self.counts.checks += 1
        self._digest.update(hashlib.sha256(f"{what}\0{subject}\0{expected!r}".encode()).digest())
        if got == expected:
            return True
        self.counts.mismatches += 1
        self._keep({"what": what, "subject": subject, "got": _short(got), "expected": _short(expected)})
        return False

    def routed(self, count: int = 1) -> None:
        """`count` comparisons that were not made, because the reference answered for the backend."""
        self.counts.checks += count
        self.counts.routed += count

    def agreed(self, count: int, evidence: bytes) -> None:
        """`count` comparisons that agreed, made in bulk; `evidence`: what was expected of all, or its digest."""
        self.counts.checks += count
        self._digest.update(hashlib.sha256(evidence).digest())

    def _differ(self, what: str, text: str, add_special_tokens: bool, plain: bool) -> bool:
        self.counts.mismatches += 1
        self._keep({"what": what, "text": text, "add_special_tokens": add_special_tokens, "plain": plain})
        return False

    def _keep(self, failure: dict[str, Any]) -> None:
        """A text, a script, or a subject, that differs in several ways is one failure: the first, and how often."""
        key = next(key for key in ("text", "script", "subject") if key in failure)
        same = next((kept for kept in self.failures if kept.get(key) == failure[key]), None)
        if same is not None:
            same["times"] += 1
        elif len(self.failures) < MAX_FAILURES:
            self.failures.append({"suite": self.suite, "block": self.block, "times": 1, **failure})

    def digest(self) -> str:
        """Hex digest of the block so far."""
        return str(self._digest.copy().hexdigest())


def little_endian_ids(ids: list[int]) -> bytes:
    """Ids as little-endian uint32."""
    words = array("I", ids)
    assert words.itemsize == 4
    return words.tobytes()  # every platform of the engine is little-endian; native/engine/piece_cache.h asserts it


def _short(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 400 else text[:397] + "..."
