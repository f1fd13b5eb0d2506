"""Whether an upstream is used, and its epoch: the number of the life of its process, as far as it can be told.

What was known of slots holds within one epoch. A llama-server of today draws a random marker when it starts, which
tells a lost connection from a restart; of an older one every loss is taken for a restart, and so are slots that have
gone back. Pure: who asks, and when, is in `upstream`.
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
        self._was_lost = False

    def lost(self, why: str) -> None:
        """It does not answer, or a connection to it ended too early."""
        self._was_lost = True
        self._set(UpstreamState.DOWN, why)

    def loading(self) -> None:
        self._was_lost = True  # a process that loads its model has not served a request
        self._set(UpstreamState.LOADING, "it loads its model")

    def refused(self, why: str) -> None:
        """It may not be used, until it is another process."""
        self._set(UpstreamState.REFUSED, why)

    def unusable(self, why: str) -> None:
        """It answers with what a llama-server does not say; asked again as one that is down."""
        self._was_lost = True
        self._set(UpstreamState.REFUSED, why)

    def answered(self, facts: UpstreamFacts, slots: Sequence[SlotReport]) -> bool:
        """It answers. Whether this is another process, or one of which nothing was known: it has to be admitted."""
        if not self._is_another(facts, slots):
            self._was_lost = False
            self.slots = list(slots)
            return False
        self.epoch += 1
        self.facts, self.slots, self.notes = facts, list(slots), []
        self._was_lost = False
        self._set(UpstreamState.DOWN, "it is being asked whether it may be used")
        return True

    def admitted(self, facts: UpstreamFacts) -> None:
        self.facts = facts
        self._set(UpstreamState.UP, None)

    def back(self) -> None:
        """The same process as before answers again."""
        self._set(UpstreamState.UP, None)

    def forget(self) -> None:
        """The next answer counts as one of another process."""
        self.facts = None

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
        return self._was_lost or any(map(_went_back, self.slots, slots))

    def _set(self, state: UpstreamState, why: str | None) -> None:
        self.state = state
        self.why = None if why is None else message(why)


def _went_back(before: SlotReport, now: SlotReport) -> bool:
    if before.id_task is not None and (now.id_task is None or now.id_task < before.id_task):
        return True
    return before.tokens is not None and now.tokens is None
