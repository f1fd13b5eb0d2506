"""`toktier serve` in a process of its own, with the stub for an app, from its ready line to its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cli.command import environment
from tests.support.material import ROOT

SECONDS = 180.0  # until a test gives up; nothing is judged by time
LIFE = 600.0  # of a process that nobody ended


class Running:
    """The process. `url`, `port`: where it serves. `lines`: of stderr, as they come."""

    def __init__(self, home: Path, *arguments: str, module: str = "tests.router.stub_app", **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, "serve", "--port", "0", "--records", "off", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=environment(home, **env), text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._timer = threading.Timer(LIFE, self.process.kill)
        self._timer.start()
        self.url, self.port = "", 0

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._said:
                self.lines.append(line.rstrip("\n"))
                self._said.notify_all()

    def ready(self) -> Running:
        """Waits until it says that it serves."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "\n".join(self.lines)
        self.said = line
        self.url = json.loads(line)["url"] if line.startswith("{") else line.split()[2].rstrip(";")
        self.port = int(self.url.rpartition(":")[2])
        return self

    def wait_for(self, text: str, times: int = 1) -> None:
        """Until stderr has said it in so many lines."""
        with self._said:
            found = self._said.wait_for(lambda: sum(text in line for line in self.lines) >= times, SECONDS)
        assert found, "\n".join(self.lines)

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Exit code, the rest of stdout, stderr."""
        assert self.process.stdout is not None
        rest = self.process.stdout.read()
        code = self.process.wait()
        self._reader.join()
        self._timer.cancel()
        return code, rest, "\n".join(self.lines)

    def raw(self, data: bytes) -> Raw:
        return Raw(self.port, data)

    def ask(self, request: bytes) -> bytes:
        """What comes back for these bytes until the connection ends."""
        with self.raw(request) as connection:
            return connection.rest()

    def get(self, path: str, *headers: str) -> tuple[int, dict[str, str], bytes]:
        lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Connection: close", *headers]
        return parsed(self.ask("\r\n".join([*lines, "", ""]).encode("latin-1")))


class Raw:
    """A connection that sends what a test says."""

    def __init__(self, port: int, data: bytes = b"") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self.socket.sendall(data)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: Any) -> None:
        self.socket.close()

    def rest(self) -> bytes:
        """Everything until the other side ends. A reset is an end."""
        got = b""
        with contextlib.suppress(ConnectionError):
            while data := self.socket.recv(65536):
                got += data
        return got

    def until(self, mark: bytes) -> bytes:
        got = b""
        while mark not in got:
            data = self.socket.recv(65536)
            assert data, got
            got += data
        return got


def parsed(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(first.split()[1]), headers, body


@contextlib.contextmanager
def running(home: Path, *arguments: str, **named: Any) -> Iterator[Running]:
    """Serves, and is killed where a test did not end it."""
    process = Running(home, *arguments, **named)
    try:
        yield process
    finally:
        process.process.kill()
        process.process.wait()
        process._timer.cancel()


UPSTREAM = ("--upstream", "http://127.0.0.1:9", "--family", "toktier_mini", "--policy", "supported")


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
