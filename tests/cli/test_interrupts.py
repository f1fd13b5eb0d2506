"""Ctrl-C at any moment: exit code 130, one line, and nothing half-written. What the interpreter does before the command
begins is its own: the tests interrupt from then on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.command import environment, run
from tests.support.material import ROOT
from toktier.errors import ArtifactNotFound, Interrupted
from toktier_cli.failure import as_toktier_error


@pytest.fixture(autouse=True)
def interruptible() -> None:
    """A run in the background of a shell has SIGINT ignored, and so would every command that is started from it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# Is the command, and says when it has begun: what main() does first is done by now.
STARTED = """import os, sys
from toktier_cli import main
begin = main._open_closed_streams
main._open_closed_streams = lambda: (os.write(2, b"!"), begin())
sys.exit(main.main())"""
# Is the command, with an interrupt at the moment when the named module is about to be imported.
AT_AN_IMPORT = """import os, signal, sys
wanted = sys.argv.pop(1)
def hook(event, arguments):
    if event == "import" and arguments[0] == wanted:
        os.write(2, b"!")
        os.kill(os.getpid(), signal.SIGINT)
from toktier_cli.main import main
sys.addaudithook(hook)
sys.exit(main())"""
# Prints what the line imports, in order.
IMPORTED = """import sys
before = set(sys.modules)
from toktier_cli.main import main
code = main(sys.argv[1:])
print(*[name for name in sys.modules if name not in before and name != "toktier_cli.main"], file=sys.stderr)"""
LINES = (
    ("encode", "--family", "toktier_mini", "hello"),
    ("inspect", "toktier_mini", "--json"),
    ("count", "--family", "toktier_mini", *["README.md"] * 40),
)


def interrupted(line: tuple[str, ...], home: Path, rng: random.Random) -> tuple[int, str, str]:
    child = subprocess.Popen(
        [sys.executable, "-c", STARTED, *line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        env=environment(home),
    )  # fmt: skip
    assert child.stderr is not None
    assert os.read(child.stderr.fileno(), 1) == b"!"
    for _ in range(rng.choice((1, 1, 2, 3))):
        time.sleep(rng.random() * 0.12)
        child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    return child.returncode, out.decode(), err.decode()


def test_an_interrupt_at_any_moment_ends_with_130_and_without_a_trace(tmp_path: Path) -> None:
    rng = random.Random(11)
    codes: list[int] = []
    for number in range(30):
        home = tmp_path / str(number)
        code, _, err = interrupted(LINES[number % len(LINES)], home, rng)
        assert code in (0, 130), err
        assert "Traceback" not in err
        assert "KeyboardInterrupt" not in err
        codes.append(code)
        assert not list(home.rglob(".tmp-*"))
        assert not list(home.rglob("*.lock"))
        if number % 10 == 0:
            assert run("encode", "--family", "toktier_mini", "hi", home=home).text == "787\n"
    assert codes.count(130) > 5


@pytest.mark.parametrize("line", [*LINES[:2], ("--version",), ("--help",)], ids=lambda line: line[0])
def test_an_interrupt_at_any_import_ends_with_130_and_without_a_trace(line: tuple[str, ...], tmp_path: Path) -> None:
    """By the import, not by a time: every module of the command, and a score of what it rests on."""

    def python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script, *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(tmp_path))

    python(IMPORTED, *line)  # compiles
    modules = python(IMPORTED, *line).stderr.splitlines()[-1].split()
    own = [name for name in modules if name.startswith("toktier_cli.")]
    others = [name for name in modules if not name.startswith(("toktier_cli", "encodings"))]
    reached = 0
    for module in [*own, *others[:: max(1, len(others) // 20)]]:
        done = python(AT_AN_IMPORT, module, *line)
        assert "Traceback" not in done.stderr, (module, done.stderr)
        assert "KeyboardInterrupt" not in done.stderr, (module, done.stderr)
        if "!" in done.stderr:  # packages come with their parts, and frozen modules with nothing
            assert done.returncode == 130, (module, done.returncode, done.stderr)
            reached += 1
    assert reached >= 1


def test_what_an_interrupt_began_is_an_interrupt() -> None:
    wrapped = RuntimeError("Error calling __set_name__")
    wrapped.__cause__ = KeyboardInterrupt()
    assert isinstance(as_toktier_error(wrapped), Interrupted)
    assert not isinstance(as_toktier_error(ArtifactNotFound("no")), Interrupted)
    ring = ValueError("a ring")
    ring.__context__ = OSError()
    ring.__context__.__context__ = ring
    assert not isinstance(as_toktier_error(ring), Interrupted)


def test_a_call_in_python_leaves_the_handlers_alone(tmp_path: Path) -> None:
    from toktier_cli.main import main

    before = signal.getsignal(signal.SIGINT), sys.unraisablehook
    assert main(["help", "exit-codes", "--home", str(tmp_path)]) == 0
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == before
