"""Worker processes from the outside: started, asked, and ended; one line of JSON each way (`worker.py`)."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from engines import Places

ANSWER_SECONDS = 300  # a pass of the slowest engine takes seconds, one that is quadratic in a long piece minutes
SCRIPT = Path(__file__).with_name("worker.py")


class WorkerFailed(Exception):
    """The process ended, or the engine raised. The message is one line without paths."""


class Worker:
    """One engine with one file. `refused` says why there is none; `absent` that it is not installed."""

    def __init__(self, name: str, file: Path, cpus: Sequence[int], places: Places, settle: bool = True) -> None:
        self.name = name
        self.refused: str | None = None
        self.absent = False
        self.load_ns = 0
        python = places.interpreter(name)
        assert python is not None
        self._file = file
        self._process = subprocess.Popen(
            [str(python), str(SCRIPT)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=places.environment(name),
        )  # fmt: skip
        peers = str(places.peers) if places.peers else None
        try:
            opened = self.ask("open", engine=name, file=str(file), cpus=list(cpus), peers=peers, settle=settle)
        except WorkerFailed:
            self.close()
            raise
        self.absent = bool(opened.get("absent"))
        self.refused = opened.get("refused")
        self.load_ns = opened.get("load_ns", 0)

    @property
    def ready(self) -> bool:
        return not self.absent and self.refused is None

    def send(self, do: str, **arguments: Any) -> None:
        """Asks without waiting, so that several workers can begin together."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerFailed(f"the process ended with {self._process.wait()}") from None

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        # One answer for each question, so nothing of an earlier one is in the buffer.
        if not select.select([self._process.stdout], [], [], ANSWER_SECONDS)[0]:
            self._process.kill()
            raise WorkerFailed(f"no answer within {ANSWER_SECONDS} seconds")
        line = self._process.stdout.readline()
        if not line:
            raise WorkerFailed(f"the process ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(str(answer["error"]).replace(str(self._file), "the file"))
        return answer

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.send(do, **arguments)
        return self.receive()

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:  # inside a call that does not end
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def opened(
    names: Sequence[str], file: Path, cpus: Sequence[int], places: Places, *, settle: bool = True
) -> Iterator[dict[str, Worker | str]]:
    """One worker an engine; in its place a sentence where it failed to open."""
    workers: dict[str, Worker | str] = {}
    try:
        for name in names:
            try:
                workers[name] = Worker(name, file, cpus, places, settle)
            except WorkerFailed as error:
                workers[name] = str(error)
        yield workers
    finally:
        for worker in workers.values():
            if isinstance(worker, Worker):
                worker.close()
