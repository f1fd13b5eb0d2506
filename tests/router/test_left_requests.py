"""A request that was left keeps its slot busy until the upstream shows it idle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.router.fake_upstream import FakeUpstream, fake_upstream, reply
from toktier.router import left_requests
from toktier.router.left_requests import LeftRequests
from toktier.router.slots import SlotTable
from toktier.router.token_ids import as_ids
from toktier.router.upstream import Timeouts, Upstream
from toktier.router.vocabulary import UpstreamState

PATIENT = Timeouts(connect=180, question=180, first_byte=180, whole=180, idle=180)


class Scene:
    def __init__(self, fake: FakeUpstream, upstream: Upstream) -> None:
        self.fake, self.upstream = fake, upstream
        self.table = SlotTable(lambda: 0.0)
        self.table.open_upstream(0, fake.total_slots, fake.n_ctx)
        self.left = LeftRequests(self.table)
        self.settled: list[int] = []

    def leave(self, slot: int = 1, *, stream: bool = True) -> None:
        reservation = self.table.reserve(0, slot, as_ids([1, 2, 3]))

        def settle() -> None:
            self.settled.append(slot)
            self.table.settle(reservation)

        self.left.add(self.upstream, reservation, settle, stream=stream)

    def show(self, busy: bool) -> None:
        rows = [{"id": index, "n_ctx": self.fake.n_ctx, "is_processing": busy} for index in range(4)]
        self.fake.slot_rows = rows

    def looks(self) -> int:
        return sum(seen.path == "/slots" for seen in self.fake.seen)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(180):
        while not holds():
            await asyncio.sleep(0.002)


def with_scene(monkeypatch: pytest.MonkeyPatch, use: Callable[[Scene], Awaitable[None]]) -> None:
    monkeypatch.setattr(left_requests, "FIRST_LOOK_OF_STREAM", 0.01)
    monkeypatch.setattr(left_requests, "PAUSE", 0.02)

    async def main() -> None:
        async with fake_upstream() as fake:
            upstream = Upstream(0, fake.url, timeouts=PATIENT)
            try:
                assert await upstream.probe() is UpstreamState.UP
                scene = Scene(fake, upstream)
                await use(scene)
                await scene.left.close()
            finally:
                await upstream.close()

    asyncio.run(main())


@pytest.mark.parametrize("stream", [True, False])
def test_its_slot_is_busy_until_it_is_shown_idle(monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    async def use(scene: Scene) -> None:
        scene.show(busy=True)
        looks = scene.looks()
        scene.leave(stream=stream)
        await until(lambda: scene.looks() > looks + 2)
        assert scene.settled == []
        assert [view.waiting for view in scene.table.views(as_ids([1, 2, 3, 4]))] == [0, 1, 0, 0]
        scene.show(busy=False)
        await until(lambda: scene.settled == [1])
        assert not any(view.waiting for view in scene.table.views(as_ids([1])))

    with_scene(monkeypatch, use)


def test_it_is_settled_once_where_the_upstream_is_lost_or_never_shows_it_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(scene: Scene) -> None:
        scene.show(busy=True)
        scene.leave()
        scene.upstream.standing.lost("gone")
        await until(lambda: scene.settled == [1])
        assert await scene.upstream.probe() is UpstreamState.UP
        monkeypatch.setattr(left_requests, "LEAST", 0.1)
        rates = scene.table.rates(0)
        assert rates is not None
        rates.generation, rates.generated = 1e6, 1.0  # usual requests take no time
        scene.leave(2)
        await until(lambda: scene.settled == [1, 2])

    with_scene(monkeypatch, use)


def test_at_the_end_all_are_settled_also_those_that_were_left_just_now(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(scene: Scene) -> None:
        scene.show(busy=True)
        for slot in range(4):
            scene.leave(slot)
        await scene.left.close()
        assert sorted(scene.settled) == [0, 1, 2, 3]
        assert not scene.table.in_flight(0)

    with_scene(monkeypatch, use)


def test_where_slots_are_not_shown_it_is_settled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(scene: Scene) -> None:
        scene.fake.answers["/slots"] = reply({}, 501)
        scene.fake.marker = "<of another process>"
        assert await scene.upstream.probe() is UpstreamState.UP
        scene.leave()
        assert scene.settled == [1]

    with_scene(monkeypatch, use)
