"""Whether an upstream is used, and its epoch: the number of the life of its process, as far as it can be told.

What was known of slots holds within one epoch, and so does what its admission came to, however often it could not be
reached meanwhile. A llama-server of today draws a random marker when it starts, which tells a lost connection from a
restart; of an older one every loss is taken for a restart, and so are slots that have gone back. Pure: who asks, and
when, is in `upstream`.
"""

from __future__ import annotations

from collections.abc import Sequence

from toktier.labels import message
from toktier.router.upstream_facts import SlotReport, UpstreamFacts
from toktier.router.vocabulary import UpstreamState

MAX_NOTES = 16


class Standing:
    """The state of one upstream. `epoch`: 0 until it has first answered. `why`: the reason of a state that is not UP,
    in words. `notes`: what an operator may want to mend."""

    def __init__(self) -> None:
        self.state = UpstreamState.DOWN
        self.why: str | None = "it was not asked yet"
        self.epoch = 0
        self.notes: list[str] = []
        self.facts: UpstreamFacts | None = None
        self.slots: list[SlotReport] = []
        self._is_admitted = False
        self._refusal: str | None = None
        self._was_lost = False
        self._last_told: list[SlotReport] = []

    def lost(self, why: str) -> None:
        """It does not answer, or a connection to it ended too early."""
        self._was_lost = True
        self._set(UpstreamState.DOWN, why)

    def loading(self) -> None:
        self._was_lost = True  # a process that loads its model has not served a request
        self._set(UpstreamState.LOADING, "it loads its model")

    def refused(self, why: str) -> None:
        """It may not be used, until it is another process."""
        self._is_admitted, self._refusal = False, why
        self._set(UpstreamState.REFUSED, why)

    def unusable(self, why: str) -> None:
        """It answers with what a llama-server does not say; asked again as one that is down."""
        self._was_lost = True
        self._set(UpstreamState.REFUSED, why)

    def answered(self, facts: UpstreamFacts, slots: Sequence[SlotReport] | None) -> bool:
        """It answers. `slots` None: it did not tell of them, as one that is busy. Whether it has to be admitted:
        another process, or one that was not judged to the end. Another is as before again: used, or refused."""
        is_another = self._is_another(facts, slots or ())
        self._was_lost = False
        self.slots = list(slots or ())
        if slots is not None or is_another:
            self._last_told = self.slots
        if not is_another and self._is_admitted:
            self._set(UpstreamState.UP, None)
        elif not is_another and self._refusal is not None:
            self._set(UpstreamState.REFUSED, self._refusal)
        else:
            self.epoch += is_another
            self.facts, self.notes = facts, []
            self._is_admitted, self._refusal = False, None
            self._set(UpstreamState.DOWN, "it is being asked whether it may be used")
            return True
        return False

    def admitted(self, facts: UpstreamFacts) -> None:
        self.facts = facts
        self._is_admitted, self._refusal = True, None
        self._set(UpstreamState.UP, None)

    def note(self, what: str) -> None:
        what = message(what)
        if what not in self.notes and len(self.notes) < MAX_NOTES:
            self.notes.append(what)

    def _is_another(self, facts: UpstreamFacts, slots: Sequence[SlotReport]) -> bool:
        known = self.facts
        if known is None or facts.identity != known.identity:
            return True
        if facts.process is not None:
            return False
        return self._was_lost or any(map(_went_back, self._last_told, slots))

    def _set(self, state: UpstreamState, why: str | None) -> None:
        self.state = state
        self.why = None if why is None else message(why)


def _went_back(before: SlotReport, now: SlotReport) -> bool:
    if before.id_task is not None and (now.id_task is None or now.id_task < before.id_task):
        return True
    return before.tokens is not None and now.tokens is None
