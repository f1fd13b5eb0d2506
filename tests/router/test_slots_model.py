"""The slot table beside a simple server that runs requests, whatever order they end in: no false certainty, no leak.

The server runs the requests of a slot in the order in which they came, reuses exactly the common prefix, stops where it
is told to, and restarts. The table is told what a router would learn, at any later time and in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from toktier.router.reservations import Reservation
from toktier.router.slots import SlotTable
from toktier.router.token_ids import as_ids, shared_prefix
from toktier.router.vocabulary import SlotState

SLOTS, N_CTX = 3, 40


@dataclass(eq=False)
class Request:
    prompt: list[int]
    reservation: Reservation
    end: dict[str, object] | None = None  # what the router will learn; None: it did not run yet
    gone: bool = False  # with an upstream that is no more


class Server:
    def __init__(self) -> None:
        self.held: list[list[int]] = [[] for _ in range(SLOTS)]
        self.queues: list[list[Request]] = [[] for _ in range(SLOTS)]

    def evaluate(self, slot: int, prompt: list[int], tokens: int | None = None) -> int:
        """`tokens`: evaluated of what is new, None: all. Returns those reused."""
        reused = min(shared_prefix(as_ids(self.held[slot]), as_ids(prompt)), len(prompt) - 1)
        end = len(prompt) if tokens is None else min(reused + tokens, len(prompt) - 1)
        self.held[slot] = prompt[:end]
        return reused


PIECES = st.lists(st.integers(0, 1), min_size=1, max_size=6)
SLOT = st.integers(0, SLOTS - 1)


class TableBesideServer(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.told: dict[int, list[int] | None] = {}
        self.table = SlotTable(lambda: self.now, on_change=self.change, on_clear=lambda upstream: self.told.clear())
        self.table.open_upstream(0, SLOTS, N_CTX)
        self.server = Server()
        self.open: list[Request] = []  # not settled
        self.prompts: list[list[int]] = [[0]]
        self.strangers = False  # somebody else uses the server as well

    def change(self, upstream: int, slot: int, ids: object) -> None:
        self.told[slot] = None if ids is None else list(ids)  # type: ignore[call-overload]

    @rule(data=st.data(), slot=SLOT, piece=PIECES)
    def ask(self, data: st.DataObject, slot: int, piece: list[int]) -> None:
        base = data.draw(st.sampled_from(self.prompts[-8:]))
        prompt = base[: data.draw(st.integers(0, len(base)))] + piece
        view = next(view for view in self.table.views(as_ids(prompt)) if view.slot == slot)
        assert view.waiting == sum(1 for r in self.open if r.reservation.slot == slot and not r.gone)
        assert view.sure <= view.reusable < len(prompt)
        assert view.reusable <= view.length
        request = Request(prompt, self.table.reserve(0, slot, as_ids(prompt), view.reusable))
        self.open.append(request)
        self.server.queues[slot].append(request)
        self.prompts.append(prompt)

    @rule(slot=SLOT, generated=PIECES, named=st.booleans(), whole=st.booleans())
    def answer(self, slot: int, generated: list[int], named: bool, whole: bool) -> None:
        """The first of a slot runs to its end, or until its client leaves, who saw a part."""
        if not self.server.queues[slot]:
            return
        request = self.server.queues[slot].pop(0)
        if len(request.prompt) >= N_CTX:
            request.end = {"refused": True}
            return
        measured = self.server.evaluate(slot, request.prompt)
        self.server.held[slot] = (request.prompt + generated[:-1])[:N_CTX]
        seen = generated if whole else generated[: max(len(generated) - 2, 1)]
        request.end = {"finished": whole, "actual_slot": slot if whole else None}
        request.end["generated" if named else "guessed"] = seen
        if whole:
            request.end |= {"measured": measured, "count": len(generated)}
            self.prompts.append(request.prompt + generated)

    @rule(slot=SLOT, tokens=st.integers(0, 5))
    def cut_short(self, slot: int, tokens: int) -> None:
        """The client of the first leaves during its prefill."""
        if self.server.queues[slot]:
            request = self.server.queues[slot].pop(0)
            if len(request.prompt) < N_CTX:
                self.server.evaluate(slot, request.prompt, tokens)
            request.end = {"finished": False}

    @rule(data=st.data(), slot=SLOT)
    def leave(self, data: st.DataObject, slot: int) -> None:
        """The client of any that waits at the server leaves."""
        if self.server.queues[slot]:
            request = data.draw(st.sampled_from(self.server.queues[slot]))
            self.server.queues[slot].remove(request)
            request.end = {"finished": False}

    @rule(data=st.data(), slot=SLOT)
    def never_sent(self, data: st.DataObject, slot: int) -> None:
        if self.server.queues[slot]:
            request = data.draw(st.sampled_from(self.server.queues[slot]))
            self.server.queues[slot].remove(request)
            request.end = {"reached_upstream": False}

    @rule(slot=SLOT, other=SLOT, generated=PIECES)
    def answer_elsewhere(self, slot: int, other: int, generated: list[int]) -> None:
        queue = self.server.queues[slot]
        if queue and len(queue[0].prompt) < N_CTX:
            request = queue.pop(0)
            measured = self.server.evaluate(other, request.prompt)
            self.server.held[other] = (request.prompt + generated[:-1])[:N_CTX]
            request.end = {"finished": True, "actual_slot": other, "measured": measured, "generated": generated}

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        ran = [request for request in self.open if request.end is not None or request.gone]
        if not ran:
            return
        request = data.draw(st.sampled_from(ran))
        self.open.remove(request)
        end = request.end or {"finished": False}
        settled = self.table.settle(request.reservation, **end)  # type: ignore[arg-type]
        assert settled.current == (not request.gone)
        if not self.strangers:
            assert not settled.stale
        if not end.get("refused") and end.get("reached_upstream", True) and "measured" in end:
            slot = request.reservation.slot
            if end["actual_slot"] == slot and not self.strangers:
                assert settled.predicted <= end["measured"]  # type: ignore[operator]
        assert not self.table.settle(request.reservation, **end).current  # type: ignore[arg-type]

    @rule()
    def restart(self) -> None:
        self.table.close_upstream(0)
        self.server = Server()
        for request in self.open:
            request.gone = True
        self.table.open_upstream(0, SLOTS, N_CTX)

    @rule(slot=SLOT, prompt=PIECES)
    def stranger(self, slot: int, prompt: list[int]) -> None:
        self.strangers = True
        self.server.held[slot] = list(prompt)

    @precondition(lambda self: not any(self.server.queues))
    @rule()
    def audit(self) -> None:
        if all(request.gone for request in self.open):
            held = [len(held) for held in self.server.held]
            wrong = self.table.audit(0, held)
            if not self.strangers:
                assert wrong == []

    @rule(seconds=st.integers(0, 2000))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @invariant()
    def nothing_leaks(self) -> None:
        here = [request for request in self.open if not request.gone]
        assert self.table.in_flight(0) == len(here)
        rows = self.table.rows(0.0)
        for row in rows:
            assert row.requests == sum(1 for r in here if r.reservation.slot == row.slot)
            assert row.sure <= row.tokens <= N_CTX
        assert sum(row.held for row in rows) < SLOTS

    @invariant()
    def what_is_certain_is_there(self) -> None:
        if self.strangers or any(not request.gone for request in self.open):
            return  # nobody can know what is on its way
        for slot, row in enumerate(self.table.rows(0.0)):
            content = self.table._upstreams[0].slots[slot].content
            held = self.server.held[slot]
            if content is None:
                assert row.state is not SlotState.KNOWN
                assert self.told.get(slot) is None
                continue
            assert held[: content.sure] == content.ids[: content.sure].tolist()
            assert not content.exact or len(held) == len(content.ids)
            assert (self.told[slot] or []) == content.ids[: content.sure].tolist()


class ForLonger(TableBesideServer):
    """The same, with room for what takes many steps."""


TestTableBesideServer = TableBesideServer.TestCase
TestTableBesideServer.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
TestForLonger = pytest.mark.ci(ForLonger.TestCase)
TestForLonger.settings = settings(max_examples=600, stateful_step_count=40, deadline=None)
