#!/usr/bin/env python3
"""What the second level of the prefix cache adds to a request while its server is well, hung, killed and started again.

A redis-server of its own on the loopback interface; threads that look up, and store what was not there, at a fixed
pace. The figure of a request is the wall time of its calls, which on a machine with other work holds waits for a
processor, too: `time-out alone`, where each request only waits for as long as a look-up may, says how long those are.
Not here: what a hit saves.

    python benchmarks/second_level.py --seconds 5 --threads 4 --ids 16384
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from toktier.cache.second_level import RedisSecondLevel

KEYS = 32  # of a look-up: a conversation of eight turns; the last but two is known
CONVERSATIONS = 64


class Server:
    def __init__(self, directory: Path) -> None:
        binary = shutil.which("redis-server") or shutil.which("valkey-server")
        if binary is None:
            raise SystemExit("needs redis-server or valkey-server")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._command = [binary, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.01)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()


def conversation(number: int, ids: int) -> tuple[list[bytes], bytes]:
    """Keys of all its prefixes, and the ids of the third."""
    keys = [sha256(b"%d %d" % (number, turn)).digest() for turn in reversed(range(KEYS))]
    return keys, (keys[2] * (ids // 8 + 1))[: 4 * ids]


def request(level: RedisSecondLevel, keys: list[bytes], expected: bytes) -> None:
    found = level.lookup(keys)
    if found is None:
        level.store(keys[2], expected)
    elif found != (2, expected):
        raise SystemExit("wrong ids")


def phase(call: Callable[[int], None], seconds: float, threads: int, pace: float) -> dict[str, Any]:
    """Milliseconds of the calls of some threads, each every `pace` seconds."""
    times: list[float] = []

    def work(own: int) -> None:
        end, number = time.monotonic() + seconds, own
        while time.monotonic() < end:
            begun = time.perf_counter()
            call(number % CONVERSATIONS)
            times.append(1000 * (time.perf_counter() - begun))
            number += threads
            time.sleep(pace)

    workers = [threading.Thread(target=work, args=(own,)) for own in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    times.sort()
    at = {f"p{100 * q:g}_ms": round(times[int(q * (len(times) - 1))], 3) for q in (0.5, 0.99, 0.999)}
    over = sum(one > 25 for one in times)
    return {"requests": len(times), "mean_ms": round(sum(times) / len(times), 4), **at,
            "max_ms": round(times[-1], 3), "over_25_ms": over}  # fmt: skip


COUNTS = ("hits", "misses", "not_asked", "timeouts", "errors", "pauses", "written", "write_errors", "dropped")


def measured(seconds: float, threads: int, pace: float, ids: int, timeout: float) -> dict[str, Any]:
    phases: dict[str, Any] = {}
    phases["time-out alone"] = phase(lambda _: time.sleep(timeout), seconds, threads, pace)
    texts = [conversation(number, ids) for number in range(CONVERSATIONS)]
    with tempfile.TemporaryDirectory() as directory:
        server = Server(Path(directory))
        level = RedisSecondLevel(f"redis://127.0.0.1:{server.port}", timeout=timeout)
        try:
            for name, act in (
                ("first", lambda: None),
                ("healthy", lambda: None),
                ("hung", lambda: server.signal(signal.SIGSTOP)),
                ("going on", lambda: server.signal(signal.SIGCONT)),
                ("killed", lambda: server.signal(signal.SIGKILL)),
                ("restarted", server.start),
            ):
                before = level.stats()
                act()
                found = phase(lambda one: request(level, *texts[one]), seconds, threads, pace)
                after = level.stats()
                phases[name] = {**found, **{count: after[count] - before[count] for count in COUNTS}}
        finally:
            level.close()
            server.signal(signal.SIGCONT)
            server.signal(signal.SIGKILL)
    return phases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each phase")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--pace", type=float, default=0.005, help="seconds between the requests of a thread")
    parser.add_argument("--ids", type=int, default=4096, help="of a value")
    parser.add_argument("--timeout", type=float, default=0.02, help="of the second level, in seconds")
    given = parser.parse_args()
    phases = measured(given.seconds, given.threads, given.pace, given.ids, given.timeout)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]}
    print(json.dumps({"machine": machine, "arguments": vars(given), "phases": phases}, indent=1))


if __name__ == "__main__":
    main()
