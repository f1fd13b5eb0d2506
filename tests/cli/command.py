"""Runs the command as a user does, in a process of its own with nothing of the caller's environment."""

from __future__ import annotations

import functools
import io
import json
import os
import pty
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.support.material import ROOT
from toktier import resources
from toktier_cli.main import main


@dataclass(frozen=True)
class Outcome:
    """What one run gave. `document` is the JSON of stdout."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8")

    @property
    def document(self) -> Any:
        return json.loads(self.stdout)


def environment(home: Path | None, **more: str) -> dict[str, str]:
    base = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "HF_HOME": "/nonexistent", "PIP_NO_INDEX": "1",
            "HF_ENDPOINT": "http://127.0.0.1:9"}  # fmt: skip
    if home is not None:
        base["TOKTIER_HOME"] = str(home)
    return base | more


def run(
    *arguments: str,
    home: Path | None,
    stdin: bytes | None = b"",
    cwd: Path = ROOT,
    env: dict[str, str] | None = None,
    timeout: float = 120,
) -> Outcome:
    """`stdin` None: closed."""
    command = [sys.executable, "-m", "toktier_cli.main", *arguments]
    given: dict[str, Any] = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    paths = {"PYTHONPATH": str(ROOT)} if cwd != ROOT else {}
    done = subprocess.run(
        command, capture_output=True, cwd=cwd, env=environment(home, **paths, **(env or {})), timeout=timeout, **given
    )
    return Outcome(done.returncode, done.stdout, done.stderr.decode("utf-8"))


def run_here(
    *arguments: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capture: pytest.CaptureFixture[bytes],
    stdin: bytes = b"",
) -> Outcome:
    """As `run`, in this process: ten times quicker, and nothing is said about what a process does at its end."""
    for name in [n for n in os.environ if n.startswith(("TOKTIER_", "HF_", "PIP_"))]:
        monkeypatch.delenv(name)
    for name, value in environment(home).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("warnings.showwarning", warnings.showwarning)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
    capture.readouterr()
    code = main(arguments)
    captured = capture.readouterr()
    return Outcome(code, captured.out, captured.err.decode("utf-8"))


def run_on_terminal(*arguments: str, home: Path) -> tuple[int, str]:
    """Exit code and everything a terminal shows."""
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "toktier_cli.main", *arguments],
        stdin=follower, stdout=follower, stderr=follower, cwd=ROOT, env=environment(home, TERM="xterm"),
    )  # fmt: skip
    os.close(follower)
    shown = b""
    while True:
        try:
            data = os.read(leader, 65536)
        except OSError:  # the other side is closed
            break
        if not data:
            break
        shown += data
    os.close(leader)
    return child.wait(60), shown.decode("utf-8").replace("\r\n", "\n")


@functools.cache
def validator(name: str) -> Draft202012Validator:
    """The shipped schema, closed: a document with a member that the schema does not list is an error here."""
    path = resources.tables_dir() / "schemas" / f"{name}.schema.json"
    schema = json.loads(path.read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(_closed(schema))


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: _closed(value) for key, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        copy.setdefault("additionalProperties", False)
    return copy


def check_document(outcome: Outcome) -> Any:
    """The one JSON document of a run with --json, checked against the schema that it names."""
    document = outcome.document
    assert outcome.stdout.count(b"\n") == 1, "more than one document, or none"
    kind = document["schema"].removeprefix("toktier.")
    validator(kind).validate(document)
    assert document["exit_code"] == outcome.code
    return document
