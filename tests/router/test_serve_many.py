"""Hundreds of requests of all kinds through the whole router, of which many clients go away: nothing stays behind."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

import toktier
from tests.router.fake_upstream import FakeUpstream, Seen, completed, reply
from tests.router.running import Raw
from tests.router.served_router import SECONDS, Served
from tests.router.upstream_calls import tokens
from tests.support.llama_server import LlamaServer
from toktier.router.vocabulary import Outcome

REQUESTS = 500
CLIENTS = 8
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def drawn(random: random.Random) -> tuple[str, dict[str, Any]]:
    """A request of some kind."""
    kind = random.randrange(10)
    limit = random.choice([1, 4, 8])
    stream = random.random() < 0.5
    more: dict[str, Any] = {"temperature": 0, "stream": stream}
    conversation = tokens(random.randrange(6), 120)[: random.randrange(20, 120)]
    if kind == 0:
        return "/v1/completions", {"prompt": conversation, "n": 2, "max_tokens": limit, **more}
    if kind == 1:
        return "/completion", {"prompt": [conversation, [1, 2, 3]], "n_predict": limit, **more}
    if kind == 2:
        return "/completion", {"prompt": tokens(50, 3000), **more}
    if kind in (3, 4):
        messages = [{"role": "user", "content": f"Question {random.randrange(5)} please answer it."}]
        return "/v1/chat/completions", {"messages": messages, "max_tokens": limit, **more}
    if kind == 5:
        return "/v1/completions", {"prompt": f"Once upon a time {random.randrange(5)}", "max_tokens": limit, **more}
    if kind == 6:
        return "/v1/completions", {"prompt": conversation, "max_tokens": limit, "cache_prompt": False, **more}
    return "/completion", {"prompt": conversation, "n_predict": limit, **more}


def sockets_to(port: int) -> int:
    """Connections of this process to a port, whatever their state but TIME_WAIT."""
    own = {_opened(name) for name in os.listdir("/proc/self/fd")}
    found = 0
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in list(table)[1:]:
            fields = line.split()
            found += int(fields[2].rpartition(":")[2], 16) == port and f"socket:[{fields[9]}]" in own
    return found


def _opened(name: str) -> str:
    """What a descriptor is; empty: it is closed by now, by whichever thread."""
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except FileNotFoundError:
        return ""


def resident() -> int:
    """Without what nobody holds, which the C library keeps more of or less, as threads happened to run."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_hundreds_of_requests_leave_nothing_behind(llama: LlamaServer, mini: toktier.Tokenizer) -> None:
    left = 0
    counting = threading.Lock()

    def some(served: Served, seed: int, count: int) -> None:
        nonlocal left
        drawing = random.Random(seed)
        with httpx.Client(base_url=served.url, trust_env=False, verify=False, timeout=SECONDS) as client:
            for _ in range(count):
                path, body = drawn(drawing)
                leaves = drawing.random()
                if leaves < 0.15:  # before the answer, most of the time
                    served.begin(path, body).socket.close()
                elif leaves < 0.3:
                    with client.stream("POST", path, json=body) as response:
                        next(response.iter_raw(), None)
                else:
                    assert client.post(path, json=body).status_code in (200, 400)
                    continue
                with counting:
                    left += 1

    with Served(llama.url, tokenizer=mini) as served:
        tasks = served.call(_tasks)

        def wave(number: int) -> None:
            with ThreadPoolExecutor(CLIENTS) as pool:
                each = REQUESTS // CLIENTS // 2
                for job in [pool.submit(some, served, 100 * number + client, each) for client in range(CLIENTS)]:
                    job.result(5 * SECONDS)
            # One that left may not have been taken yet: whoever comes behind it is answered when it has.
            with Raw(int(served.url.rpartition(":")[2]), HEALTH) as last:
                assert last.rest().startswith(b"HTTP/1.1 200")
            served.until(lambda: served.stats()["guards"]["running"] == 0)

        wave(1)
        grown = resident()
        wave(2)
        served.until(lambda: not served.in_flight())
        stats = served.stats()
        assert stats["guards"]["faults"] == 0
        assert stats["stale"] == sum(one.stale for one in served.requests)
        outcomes = {Outcome.DONE, Outcome.REFUSED_UPSTREAM, Outcome.DISCONNECTED}
        assert {one.outcome for one in served.requests} == outcomes
        assert sum(one.outcome is Outcome.DISCONNECTED for one in served.requests) <= left
        # One that left before its request was read is of nobody.
        assert REQUESTS // CLIENTS // 2 * 2 * CLIENTS - left <= len(served.requests) <= REQUESTS
        assert served.until(lambda: served.call(_tasks) <= tasks)
        llama.until_idle()
        # What the client library keeps open for the next request, and no more.
        served.until(lambda: sockets_to(llama.port) <= CLIENTS + 4)
        served.until(lambda: len(served._server.server_state.connections) <= 2)
        assert resident() - grown < 16 << 20
        # What is said of the slots is true.
        served.call(lambda: served.router._probe(served.router.upstreams[0]))
        counts = [slot.get("n_prompt_tokens", 0) for slot in llama.slots()]
        assert all(sure <= count for (_, _, sure), count in zip(served.held(), counts, strict=True))
    assert sockets_to(llama.port) <= 1  # of the test itself


async def _tasks() -> int:
    return len(asyncio.all_tasks())


def test_answers_in_one_piece_share_a_connection(
    fake: FakeUpstream, mini: toktier.Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toktier.router.upstream.KEEPALIVE_SECONDS", 3600.0)

    async def where_it_was_asked(seen: Seen, writer: asyncio.StreamWriter) -> None:
        await reply(completed(0, 100, seen.json["id_slot"]))(seen, writer)

    with Served(fake.url, tokenizer=mini) as served:
        fake.answers["/completion"] = where_it_was_asked
        tasks = served.call(_tasks)
        served.complete(tokens(1, 100))
        ended, open_now = fake.ended, len(fake._tasks)
        for number in range(2, 22):  # each is new: of one that should have been found, the upstream would be suspected
            # A client has its answer before the connection to the upstream is given back.
            served.until(lambda: served.call(_tasks) <= tasks)
            served.complete(tokens(number, 100))
        assert (fake.ended, len(fake._tasks)) == (ended, open_now)


@pytest.mark.parametrize("path", ["/completion", "/v1/completions", "/v1/chat/completions"])
def test_a_router_that_ends_leaves_no_connection(llama: LlamaServer, mini: toktier.Tokenizer, path: str) -> None:
    body = {"prompt": tokens(1, 50), "messages": [{"role": "user", "content": "a"}], "max_tokens": 4, "n_predict": 4}
    with Served(llama.url, tokenizer=mini) as served:
        assert served.post(path, body).status_code == 200
    assert sockets_to(llama.port) <= 1
