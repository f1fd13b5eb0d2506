"""A slot table over a clock that tests set, and short ways to run requests through it."""

from __future__ import annotations

from collections.abc import Sequence

from toktier.router.decide import Decision, Policy, decide
from toktier.router.reservations import Settled
from toktier.router.slot_view import View
from toktier.router.slots import SlotTable
from toktier.router.token_ids import TokenIds, as_ids


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Table(SlotTable):
    """Upstream 0 is open; `told` holds what was said of changes."""

    def __init__(self, slots: int = 4, n_ctx: int = 1024) -> None:
        self.clock = Clock()
        self.told: list[tuple[int, int | None, list[int] | None]] = []
        super().__init__(
            self.clock,
            on_change=lambda upstream, slot, ids: self.told.append(
                (upstream, slot, None if ids is None else ids.tolist())
            ),
            on_clear=lambda upstream: self.told.append((upstream, None, None)),
        )
        self.open_upstream(0, slots, n_ctx)

    def run(
        self,
        slot: int,
        prompt: TokenIds,
        generated: Sequence[int] = (1, 2, 3, 4, 5, 6, 7, 8),
        measured: int | None = None,
    ) -> Settled:
        """A request from beginning to end, in the slot that was asked; by default all that it shares is reused."""
        view = self.view(prompt, slot)
        reservation = self.reserve(0, slot, prompt, view.reusable)
        return self.settle(
            reservation,
            generated=as_ids(generated),
            measured=view.reusable if measured is None else measured,
            actual_slot=slot,
            finished=True,
        )

    def view(self, prompt: TokenIds, slot: int, upstream: int = 0) -> View:
        return next(view for view in self.views(prompt) if (view.upstream, view.slot) == (upstream, slot))

    def decision(self, prompt: TokenIds, policy: Policy | None = None) -> Decision:
        found = decide(len(prompt), self.views(prompt), policy=policy)
        assert isinstance(found, Decision)
        return found

    def send(self, prompt: TokenIds, generated: Sequence[int] = (1, 2, 3, 4, 5, 6, 7, 8)) -> Decision:
        """A request to the slot that is decided on."""
        decision = self.decision(prompt)
        settled = self.run(decision.slot, prompt, generated)
        assert not settled.stale
        return decision

    def content(self, slot: int) -> list[int] | None:
        content = self._upstreams[0].slots[slot].content
        return None if content is None else content.ids.tolist()

    def sure(self, slot: int) -> int:
        return next(row.sure for row in self.rows(0.0) if (row.upstream, row.slot) == (0, slot))

    def is_idle(self) -> bool:
        return all(row.requests == 0 for row in self.rows(0.0))
