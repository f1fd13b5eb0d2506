#!/usr/bin/env python3
"""A router under many clients for minutes, while its upstreams are killed, restarted and frozen, and clients go away.

What must hold then: every count of reused tokens in the record is one that an upstream said, no slot is left busy, a
5xx has a cause, the log tells of no fault, memory and open files stay flat, and greedy answers are those of a server
that reuses nothing. Not here: what clients ask (`soak_clients`). Run by hand for its ten minutes:

    python -m tests.router.soak --minutes 10 --clients 100 --json soak.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from tests.router.soak_clients import CONTEXT, MAX_BODY, WORDS, Fixed, Soaker, Tally
from tests.support.llama_server import LlamaServer, make_model
from toktier import resources

MINI: Final = resources.tables_dir() / "artifacts" / "toktier_mini" / "tokenizer.json"
# Of resident memory over the last two thirds: what the allocator keeps, and what caches with bounds still take.
MAX_GROWTH_BYTES: Final = 16 << 20
MAX_FILES_MORE: Final = 8  # open files in the end beyond those before: connections of health checks
HEALTH_SECONDS, IDLE_SECONDS = 1.0, 5.0
AFTERMATH_SECONDS: Final = 2.0  # of a disturbance: answers that were under way
QUIET_SECONDS: Final = 180.0  # until nothing runs any more
# Batches of several requests add in another order: greedy answers are compared where no two tokens come this close.
LEAST_MARGIN: Final = 0.1
FIXED_PROMPTS, FIXED_TOKENS = 12, 8


@dataclass
class Disturbance:
    what: str
    upstream: int
    began: float
    ended: float = float("inf")


class RouterProcess:
    """`toktier serve`, with records, in front of `upstreams`."""

    def __init__(self, upstreams: Sequence[str], directory: Path, most: int) -> None:
        self.records, self.log = directory / "requests.db", directory / "router.log"
        line = [sys.executable, "-m", "toktier_cli.main", "serve", "--tokenizer-file", str(MINI), "--port", "0"]
        line += [part for url in upstreams for part in ("--upstream", url)]
        line += ["--records", str(self.records), "--max-body-bytes", str(MAX_BODY), "--max-concurrent", str(most)]
        line += ["--health-seconds", str(HEALTH_SECONDS), "--idle-seconds", str(IDLE_SECONDS)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        said = self.process.stdout.readline().decode()
        found = re.search(r"http://\S+?(?=;)", said)
        assert found, f"{said}{self.log.read_text('utf-8')[-2000:]}"
        self.url = found[0]

    def rss(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(QUIET_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


@dataclass
class Outcome:
    """`failures`: what did not hold, in words; empty: all did."""

    failures: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.failures.append(otherwise)


def fixed_prompts(server: LlamaServer) -> list[Fixed]:
    """Prompts with the answers of a server that reuses nothing, sure of each token by `LEAST_MARGIN`."""
    chance, found = random.Random(7), []
    for _ in range(400):
        prompt = " ".join(chance.choices(WORDS, k=chance.randint(20, 200)))
        body = {"prompt": prompt, "n_predict": FIXED_TOKENS, "temperature": 0, "cache_prompt": False, "n_probs": 2}
        answer = server.post("/completion", {**body, "return_tokens": True})
        margins = []
        for token in answer["completion_probabilities"]:
            first, second = (one["logprob"] for one in token["top_logprobs"][:2])
            margins.append(first - second)
        if min(margins) >= LEAST_MARGIN:
            found.append(Fixed(prompt, answer["tokens"], answer["content"]))
            if len(found) == FIXED_PROMPTS:
                return found
    raise AssertionError(f"only {len(found)} prompts have answers that are sure")


async def disturb(
    servers: list[LlamaServer],
    client: httpx.AsyncClient,
    until: float,
    chance: random.Random,
    pause: tuple[float, float],
) -> list[Disturbance]:
    """Kills and restarts, or freezes for a while, one upstream after the other; at times the second before the first
    is back."""
    done: list[Disturbance] = []

    async def one(number: int) -> None:
        kind, upstream = ("kill", "freeze")[number % 2], number // 2 % 2
        server = servers[upstream]
        it = Disturbance(kind, upstream, time.monotonic())
        done.append(it)
        if kind == "kill":
            server.kill()
            await asyncio.sleep(chance.uniform(0.0, 2.0))
            await asyncio.to_thread(server.restart)
        else:
            server.freeze()
            await asyncio.sleep(chance.uniform(0.5, 1.5 * IDLE_SECONDS))
            server.thaw()
        while not await _is_used(client, upstream):
            await asyncio.sleep(0.05)
        it.ended = time.monotonic()

    number = 0
    while time.monotonic() < until:
        # Of the other kind and of the other upstream: a kill is followed by its freeze.
        other = number + (3 if number % 2 == 0 else 1)
        both = [number, other] if chance.random() < 0.2 else [number]
        await asyncio.gather(*(one(which) for which in both))
        number += 1
        await asyncio.sleep(chance.uniform(*pause))
    return done


async def _is_used(client: httpx.AsyncClient, upstream: int) -> bool:
    document = (await client.get("/toktier/slots")).json()
    return bool(document["upstreams"][upstream]["state"] == "up")


async def soak(seconds: float, clients: int, seed: int, directory: Path) -> Outcome:
    model = make_model(MINI, directory / "mini.gguf")
    servers = [LlamaServer(model, directory, ["--ctx-size", str(4 * CONTEXT)]).start() for _ in range(2)]
    outcome = Outcome()
    try:
        fixed = fixed_prompts(servers[0])
        servers[0].restart()
        router = RouterProcess([server.url for server in servers], directory, clients + 32)
        try:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=clients)
            async with httpx.AsyncClient(
                base_url=router.url, limits=limits, timeout=None, trust_env=False, headers={"user-agent": "soak"}
            ) as client:
                await _run(router, servers, client, fixed, seconds, clients, seed, outcome)
        finally:
            status = router.stop()
        outcome.expect(status == 0, f"the router ended with {status}")
        _check_log(router.log.read_text("utf-8", "replace"), outcome)
        return outcome
    finally:
        for server in servers:
            server.stop()


async def _run(
    router: RouterProcess,
    servers: list[LlamaServer],
    client: httpx.AsyncClient,
    fixed: list[Fixed],
    seconds: float,
    clients: int,
    seed: int,
    outcome: Outcome,
) -> None:
    tally, chance = Tally(), random.Random(seed)
    files_before, began = router.files(), time.monotonic()
    until = began + seconds
    memory: list[int] = []
    files: list[int] = []

    async def sample() -> None:
        while True:
            memory.append(router.rss())
            files.append(router.files())
            await asyncio.sleep(min(1.0, seconds / 60))

    sampling = asyncio.create_task(sample())
    disturbing = asyncio.create_task(disturb(servers, client, until - 2, chance, (1.0, max(2.0, seconds / 60))))
    soakers = [Soaker(client, tally, fixed, 1000 * seed + number) for number in range(clients)]
    disturbances, *_ = await asyncio.gather(disturbing, *(soaker.run(until) for soaker in soakers))
    sampling.cancel()
    outcome.expect(
        await _is_quiet(client), f"slots are still busy: {(await client.get('/toktier/slots')).json()['slots']}"
    )
    calm = len(tally.seen)
    for one in fixed:
        for path in ("/completion", "/v1/completions"):
            await soakers[0].ask_fixed(one, path, stream=path == "/completion")
    outcome.expect(all(one.whole for one in tally.seen[calm:]), "an answer failed when nothing was disturbed any more")
    stats = (await client.get("/toktier/stats")).json()
    await client.aclose()
    files_after = await _files_at_rest(router, files_before + MAX_FILES_MORE)
    router.stop()
    _check_seen(tally, disturbances, outcome)
    _check_records(router.records, tally, stats, outcome)
    third = len(memory) // 3
    early, late = (statistics.median(part) for part in (memory[third : third + third // 2], memory[-third // 2 :]))
    outcome.expect(
        late - early <= MAX_GROWTH_BYTES, f"memory grew by {(late - early) / 1e6:.1f} MB over the last two thirds"
    )
    outcome.expect(
        files_after <= files_before + MAX_FILES_MORE, f"{files_after} open files in the end, {files_before} before"
    )
    outcome.figures |= {
        "seconds": round(time.monotonic() - began, 1),
        "clients": clients,
        "seed": seed,
        "requests": len(tally.seen) + sum(tally.left.values()),
        "by_kind": dict(Counter(one.kind for one in tally.seen)),
        "by_status": dict(Counter(str(one.status) for one in tally.seen)),
        "failed": dict(Counter(one.failed for one in tally.seen if one.failed)),
        "left": dict(tally.left),
        "disturbances": dict(Counter(one.what for one in disturbances)),
        "outcomes": stats["outcome"],
        "reuse": stats["reuse"],
        "stale": stats["stale"],
        "guards": stats["guards"],
        "memory_bytes": {"first": memory[0], "early": early, "late": late, "most": max(memory)},
        "memory_over_time": memory[:: max(len(memory) // 20, 1)],
        "open_files": {"before": files_before, "most": max(files), "after": files_after},
        "load_average": os.getloadavg()[0],
    }


async def _is_quiet(client: httpx.AsyncClient) -> bool:
    """Whether no slot is used or waited for, after a while at most."""
    until = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < until:
        document = (await client.get("/toktier/slots")).json()
        if not any(slot["requests"] for slot in document["slots"]):
            return True
        await asyncio.sleep(0.1)
    return False


async def _files_at_rest(router: RouterProcess, enough: int) -> int:
    """Idle connections to upstreams are closed after some seconds."""
    until = time.monotonic() + QUIET_SECONDS
    while (count := router.files()) > enough and time.monotonic() < until:
        await asyncio.sleep(0.2)
    return count


def _check_seen(tally: Tally, disturbances: list[Disturbance], outcome: Outcome) -> None:
    for wrong in tally.wrong[:10]:
        outcome.failures.append(wrong)

    def is_caused(began: float, ended: float) -> bool:
        return any(began <= one.ended + AFTERMATH_SECONDS and one.began <= ended for one in disturbances)

    uncaused = Counter(
        f"{one.kind}: {one.failed or one.status}"
        for one in tally.seen
        if (one.failed or one.status is None or one.status >= 500) and not is_caused(one.began, one.ended)
    )
    outcome.expect(not uncaused, f"failed while nothing was disturbed: {dict(uncaused)}")
    outcome.expect(all(one.status != 500 for one in tally.seen), "an answer had status 500")


def _check_records(path: Path, tally: Tally, stats: dict[str, Any], outcome: Outcome) -> None:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        rows = {
            row[0]: row[1:]
            for row in database.execute("SELECT id, measured, prompt_tokens, outcome, reuse FROM requests")
        }
    shut_down = stats["outcome"]["shut_down"]
    outcome.expect(shut_down == 0, f"{shut_down} requests recorded as cut off by the end of a router that went on")
    outcome.expect(stats["records"]["dropped"] == 0, f"{stats['records']['dropped']} records were dropped")
    said = recorded = compared = 0
    for one in tally.seen:
        if not one.whole or one.reused is None or one.id is None:
            continue
        compared += 1
        said += one.reused
        row = rows.get(one.id)
        if row is None:
            outcome.failures.append(f"{one.kind} was answered and is not recorded")
            continue
        recorded += row[0] or 0
        outcome.expect(row[0] == one.reused, f"{one.kind}: {row[0]} tokens recorded as reused, {one.reused} said")
        outcome.expect(row[1] == one.prompt, f"{one.kind}: a prompt of {row[1]} tokens recorded, {one.prompt} said")
        outcome.expect(row[2] == "done", f"{one.kind} came whole and is recorded as {row[2]}")
    for measured, prompt, _, reuse in rows.values():
        if measured is not None:
            outcome.expect(
                0 <= measured < max(prompt, 1), f"{measured} tokens of a prompt of {prompt} recorded as reused"
            )
            outcome.expect((reuse == "hit") == (measured >= 10), f"{measured} reused tokens recorded as {reuse}")
        else:
            outcome.expect(reuse == "unmeasured", f"reuse was not measured and is recorded as {reuse}")
    outcome.expect(said == recorded, f"{recorded} tokens recorded as reused, {said} said to the same clients")
    outcome.figures |= {"records": len(rows), "compared": compared, "reused_tokens": said}


def _check_log(log: str, outcome: Outcome) -> None:
    """Lines about refused requests and lost upstreams are warnings; an error is a fault that nobody foresaw."""
    faults = [line for line in log.splitlines() if line.startswith("error:") or "Traceback" in line]
    outcome.expect(not faults, f"the log tells of {len(faults)} faults, first {faults[:3]}")
    outcome.figures["log_lines"] = len(log.splitlines())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where the figures are written")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        outcome = asyncio.run(soak(60 * given.minutes, given.clients, given.seed, Path(directory)))
    text = json.dumps({"failures": outcome.failures, **outcome.figures}, indent=1)
    print(text)
    if given.json is not None:
        given.json.write_text(text + "\n", encoding="utf-8")
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
