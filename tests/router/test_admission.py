"""As many requests run as may, the rest waits in order or is told to come again, and no place is ever lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.router.asgi import Exchange, ask
from toktier.router.admission import Admission
from toktier.router.refusals import Refusal, Refused


class Held:
    """An app whose requests run until each is let go. `order`: paths, as they began."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Event] = {}
        self.order: list[str] = []
        self.most = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        name = scope["path"]
        self.running[name] = asyncio.Event()
        self.order.append(name)
        self.most = max(self.most, len(self.running))
        try:
            while (await receive()).get("more_body"):
                pass
            await self.running[name].wait()
            if name.endswith("boom"):
                raise RuntimeError(name)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        finally:
            del self.running[name]


async def settled() -> None:
    """Everything that can go on has gone on."""
    for _ in range(20):
        await asyncio.sleep(0)


def start(guard: Admission, name: str, **request: Any) -> tuple[Exchange, asyncio.Task[Exchange]]:
    exchange = Exchange(method="POST", path=f"/{name}".encode(), **request)
    return exchange, asyncio.ensure_future(exchange.through(guard))


def test_those_who_wait_run_in_the_order_they_came() -> None:
    async def run() -> None:
        held = Held()
        guard = Admission(held, 2, 10, 60)
        tasks = []
        for n in range(6):
            tasks.append(start(guard, str(n))[1])
            await settled()
        assert (guard.running, guard.queued, held.order) == (2, 4, ["/0", "/1"])
        for n in range(6):
            held.running[f"/{n}"].set()
            await settled()
        assert held.order == [f"/{n}" for n in range(6)]
        assert [(await task).status for task in tasks] == [200] * 6
        assert held.most == 2
        assert (guard.running, guard.queued, guard.admitted, guard.rejected, guard.left) == (0, 0, 6, 0, 0)

    asyncio.run(run())


def test_whoever_finds_the_queue_full_is_told_to_come_again() -> None:
    async def run() -> None:
        held = Held()
        guard = Admission(held, 1, 1, 60)
        first, second = start(guard, "0")[1], start(guard, "1")[1]
        await settled()
        exchange, third = start(guard, "2")
        with pytest.raises(Refused) as raised:
            await third
        assert raised.value.code is Refusal.OVERLOADED
        assert raised.value.headers == ((b"retry-after", b"60"),)
        assert exchange.sent == []
        for name, task in (("/0", first), ("/1", second)):
            await settled()
            held.running[name].set()
            await task
        assert (guard.running, guard.queued, guard.admitted, guard.rejected) == (0, 0, 2, 1)

    asyncio.run(run())


def test_nobody_waits_longer_than_was_said() -> None:
    async def run() -> None:
        held = Held()
        guard = Admission(held, 1, 5, 0.01)
        first = start(guard, "0")[1]
        await settled()
        with pytest.raises(Refused) as raised:
            await start(guard, "1")[1]
        assert raised.value.code is Refusal.OVERLOADED
        assert raised.value.headers == ((b"retry-after", b"1"),)
        held.running["/0"].set()
        await first
        assert (guard.running, guard.queued, guard.rejected) == (0, 0, 1)

    asyncio.run(run())


def test_a_client_that_goes_away_leaves_the_queue_and_is_not_served() -> None:
    async def run() -> None:
        held = Held()
        guard = Admission(held, 1, 2, 60)
        first = start(guard, "0")[1]
        gone, leaving = start(guard, "1", body=[b"a prompt"])
        waiting = start(guard, "2")[1]
        await settled()
        assert guard.queued == 2
        gone.gone.set()
        await leaving
        assert (guard.queued, guard.left, gone.sent) == (1, 1, [])
        for name, task in (("/0", first), ("/2", waiting)):
            await settled()
            held.running[name].set()
            await task
        assert held.order == ["/0", "/2"]
        assert (guard.running, guard.queued, guard.admitted) == (0, 0, 2)

    asyncio.run(run())


def test_a_client_that_goes_away_while_it_sends_never_asked() -> None:
    async def run() -> None:
        held = Held()
        guard = Admission(held, 1, 2, 60)
        exchange, task = start(guard, "0", body=[b"half"], stalls=True)
        await settled()
        assert guard.running == 0  # slow senders hold no place
        exchange.gone.set()
        await task
        assert (held.order, guard.left, guard.running) == ([], 1, 0)

    asyncio.run(run())


def test_a_large_body_is_not_kept_while_it_waits() -> None:
    """A quarter of a MiB is read ahead, and the app gets every byte."""
    pieces = [b"%07d" % n * 10_000 for n in range(20)]
    got = []

    async def app(_: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            got.append(message["body"])
            if not message["more_body"]:
                return

    exchange = Exchange(method="POST", path=b"/v1/completions", body=list(pieces))

    async def run() -> None:
        guard = Admission(app, 1, 1, 60)
        guard.running = 1
        task = asyncio.ensure_future(exchange.through(guard))
        await settled()
        assert exchange.asked == 4  # of 70 kB each
        guard._release()
        await task

    asyncio.run(run())
    assert got == pieces


@given(st.lists(st.tuples(st.sampled_from(["come", "end", "boom", "leave", "cancel"]), st.integers(0, 9)), max_size=40))
def test_no_place_is_lost_whatever_happens_in_whatever_order(steps: list[tuple[str, int]]) -> None:
    async def run() -> None:
        held = Held()
        guard = Admission(held, 2, 2, 60)
        known: list[tuple[str, Exchange, asyncio.Task[Exchange]]] = []
        for count, (step, which) in enumerate(steps):
            if step == "come":
                name = f"{count}{'boom' if which > 7 else ''}"
                known.append((f"/{name}", *start(guard, name)))
            elif known:
                name, exchange, task = known[which % len(known)]
                if step == "leave":
                    exchange.gone.set()
                elif step == "cancel":
                    task.cancel()
                elif name in held.running:
                    held.running[name].set()
            if which % 2:  # some steps fall into one turn of the loop
                await settled()
            assert len(held.running) <= 2
            assert guard.queued <= 2
        await settled()
        while any(not task.done() for _, _, task in known):
            for event in list(held.running.values()):
                event.set()
            await settled()
        assert (guard.running, guard.queued) == (0, 0)
        await asyncio.gather(*(task for _, _, task in known), return_exceptions=True)
        assert guard.admitted + guard.rejected + guard.left <= len(known)

    asyncio.run(run())


def test_those_who_look_how_things_are_do_not_wait() -> None:
    held = Held()
    guard = Admission(held, 0, 0, 60)
    for path in (b"/", b"/health", b"/metrics", b"/toktier/slots"):

        async def run(path: bytes = path) -> None:
            exchange = Exchange(path=path)
            task = asyncio.ensure_future(exchange.through(guard))
            await settled()
            held.running[path.decode()].set()
            assert (await task).status == 200

        asyncio.run(run())
    with pytest.raises(Refused):
        ask(guard, path=b"/v1/completions", method="POST")
