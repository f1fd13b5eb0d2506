"""A real redis-server of a test's own: its directory, a unix socket or a free port of the loopback interface."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.ports import free_port

BINARY = shutil.which("redis-server") or shutil.which("valkey-server")
PASSWORD = "s3cr3t-of-the-test"
PATIENCE = 120.0  # seconds after which a server counts as one that does not start


def needed() -> str:
    """The binary; skips where there is none, and says so."""
    pytest.importorskip("redis", reason="needs the distribution redis (extra redis)")
    if BINARY is None:
        pytest.skip("needs redis-server (apt-get install redis-server)")
    return BINARY


class RedisProcess:
    """Started on making. `durable`: acknowledged writes survive a kill."""

    def __init__(
        self, directory: Path, *options: str, durable: bool = False, tcp: bool = False, cluster: bool = False
    ) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port() if tcp or cluster else 0
        self._socket = directory / "redis.sock"
        kept = ("--appendonly", "yes", "--appendfsync", "always") if durable else ("--appendonly", "no")
        place = ("--bind", "127.0.0.1", "--port", str(self.port), "--unixsocket", str(self._socket))
        clustered = ("--cluster-enabled", "yes", "--cluster-port", str(free_port())) if cluster else ()
        self._command = [
            *(needed(), *place, "--save", "", "--dir", str(directory), *kept, *clustered, *options),
            *("--logfile", str(directory / "log"), "--daemonize", "no"),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        if cluster:
            self.command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
            self._until(lambda: b"cluster_state:ok" in self.command("CLUSTER", "INFO"))

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    @property
    def tcp_url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)
        self._until(self._answers)

    def _until(self, holds: object) -> None:
        assert callable(holds)
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert self._process is not None
            assert self._process.poll() is None, (self._directory / "log").read_text()
            assert time.monotonic() < deadline, (self._directory / "log").read_text()
            time.sleep(0.01)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.command("PING").startswith((b"+PONG", b"-NOAUTH"))
        return False

    def command(self, *words: str) -> bytes:
        """One command by a client that is none of ours; the first 64 KiB of its answer."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE)
            client.connect(str(self._socket))
            client.sendall(
                b"".join([b"*%d\r\n" % len(words), *[b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words]])
            )
            return client.recv(1 << 16)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def hang(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # it answers nothing from here on

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.go_on()
            self.kill()
