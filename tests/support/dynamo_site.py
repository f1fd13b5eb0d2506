"""Dynamo's own runtime, whose indexer KV events are for. Tests skip without it; with DYNAMO=required, as in the job of
`dev.py test --tier ci` that has it on its path, they fail.

The indexer listens on all interfaces and has no key: it is run in a network namespace of its own, together with the
test that feeds it.
"""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NoReturn, Self

import pytest

PORT = 8090
PATIENCE = 60.0  # seconds after which something that is waited for counts as missing
INSIDE = "TOKTIER_TEST_NAMESPACE"
NAMESPACE = ("--net",) if os.geteuid() == 0 else ("--map-root-user", "--net")
SIOCSIFFLAGS, IFF_UP = 0x8914, 1  # of Linux


def _without(reason: str) -> NoReturn:
    if os.environ.get("DYNAMO") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


def required_dynamo() -> ModuleType:
    """Its native module."""
    if importlib.util.find_spec("dynamo") is None:
        _without("needs ai-dynamo-runtime (extra dynamo-test), which is not on the path")
    return importlib.import_module("dynamo._core")


def run_inside_namespace(script: Path, *arguments: str) -> None:
    """Run a script in a network namespace that has nothing but a loopback interface, which the script brings up with
    `enter_namespace`. A failure of it is the test's."""
    if shutil.which("unshare") is None:
        _without("needs unshare (util-linux), for a network namespace")
    if subprocess.run(["unshare", *NAMESPACE, "true"], capture_output=True, check=False).returncode:
        _without("needs the right to make a network namespace")
    path = os.pathsep.join(part for part in sys.path if part)
    environment = {**os.environ, "PYTHONPATH": path, INSIDE: "1"}
    line = ["unshare", *NAMESPACE, sys.executable, str(script), *arguments]
    ran = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def enter_namespace() -> None:
    """Bring the loopback interface up, once and inside."""
    assert os.environ.get(INSIDE)
    flags = struct.pack("16sh14x", b"lo", IFF_UP)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, flags)


class Indexer:
    """`python -m dynamo.indexer`, started and stopped; only where nobody else can reach it."""

    def __init__(self, log: Path) -> None:
        assert os.environ.get(INSIDE), "it listens on all interfaces"
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            line = [sys.executable, "-m", "dynamo.indexer", "--port", str(PORT)]
            self._process = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT)
        self.until(lambda: self._answers())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait()
        if error is not None:
            print(self._log.read_text(errors="replace"), file=sys.stderr)

    def post(self, route: str, **body: Any) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{PORT}{route}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def register(self, instance: int, endpoint: str, replay_endpoint: str | None = None, **more: Any) -> None:
        if replay_endpoint is not None:
            more["replay_endpoint"] = replay_endpoint
        said = self.post(
            "/register", instance_id=instance, endpoint=endpoint, model_name="model", block_size=16, **more
        )
        assert said == {"status": "ok"}, said

    def scores(self, ids: list[int], **more: Any) -> dict[str, dict[str, int]]:
        """Tokens of `ids` that each worker holds: {instance: {rank: tokens}}."""
        found: dict[str, dict[str, int]] = self.post("/query", token_ids=ids, model_name="model", **more)["scores"]
        return found

    def scores_become(self, ids: list[int], expected: dict[str, dict[str, int]], **more: Any) -> None:
        self.until(lambda: self.scores(ids, **more) == expected, lambda: f"{self.scores(ids, **more)} != {expected}")

    def until(self, holds: Callable[[], bool], said: Callable[[], str] = lambda: "the indexer does not answer") -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, said()
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=PATIENCE) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False
