"""count on real work: patterns, directories, suffixes, jobs, and files that cannot be counted beside those that can."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.cli.command import Outcome, check_document, environment, run, run_here, run_on_terminal
from tests.support.material import ROOT
from tests.support.native_tokenizers import native_family

MINI = ("--family", "toktier_mini")
Command = Callable[..., Outcome]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A tree with texts, a hidden directory, a hidden file, bytes that are no text, a pipe, and links."""
    top = tmp_path / "top"
    for name, text in {
        "a.md": "hello world\n", "b.txt": "Größe 12,345\n", "deep/c.md": "one two three\n", "deep/er/d.md": "x" * 50,
        ".git/config.md": "hidden", ".hidden.md": "hidden", "deep/empty.md": "",
    }.items():  # fmt: skip
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    os.mkfifo(top / "pipe.md")
    (top / "deep" / "up").symlink_to(top)
    (top / "link.md").symlink_to(top / "a.md")
    return top


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    return partial(run_here, home=tmp_path / "home", monkeypatch=monkeypatch, capture=capfdbinary)


def counted(command: Command, *words: str, code: int = 0) -> dict[str, int]:
    outcome = command("count", *MINI, "--json", "--per-file", *words)
    assert outcome.code == code, outcome.stdout
    document = check_document(outcome)
    assert document["tokens"] == sum(f["tokens"] for f in document["files"])
    return {f["path"]: f["tokens"] for f in document["files"]}


def test_directories_are_walked_when_asked(command: Command, place: Path) -> None:
    mini = native_family("toktier_mini")
    names = ["a.md", "b.txt", "deep/c.md", "deep/empty.md", "deep/er/d.md", "link.md"]
    wanted = {f"{place}/{name}": mini.count((place / name).read_text()) for name in names}
    assert counted(command, "--recursive", str(place)) == wanted
    assert list(counted(command, "-r", str(place), "--jobs", "1")) == list(wanted)
    only = counted(command, "-r", str(place), "--suffix", ".txt", "--suffix", "d.md")
    assert list(only) == [f"{place}/b.txt", f"{place}/deep/er/d.md"]
    refused = command("count", *MINI, str(place))
    assert refused.code == 2
    assert "--recursive" in refused.stderr
    nothing = command("count", *MINI, "-r", str(place), "--suffix", ".rs")
    assert (nothing.code, nothing.text) == (0, "0\n")
    assert "no file" in nothing.stderr


def test_patterns_that_the_shell_left_alone(command: Command, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "pipe.md").unlink()
    (place / "deep" / "up").unlink()
    monkeypatch.chdir(place)
    assert list(counted(command, "*.md")) == ["a.md", "link.md"]
    assert list(counted(command, "**/*.md")) == ["a.md", "deep/c.md", "deep/empty.md", "deep/er/d.md", "link.md"]
    (place / "x[1].md").write_text("literal")
    assert list(counted(command, "x[1].md")) == ["x[1].md"]
    outcome = command("count", *MINI, "*.nope", "a.md")
    assert (outcome.code, outcome.stderr.splitlines()[0]) == (6, "error: no file matches *.nope")
    assert command("count", *MINI, "*.nope").code == 3


def test_bad_files_are_reported_and_the_rest_is_counted(command: Command, place: Path) -> None:
    (place / "bad.md").write_bytes(b"fine so far " * 200_000 + b"\xff")
    (place / "broken.md").symlink_to(place / "absent")
    outcome = command("count", *MINI, "-r", str(place), "--suffix", ".md")
    assert (outcome.code, outcome.stderr.count("error: ")) == (6, 1)  # a link to nothing is no regular file
    assert f"bad.md: malformed UTF-8 at byte {12 * 200_000}" in outcome.stderr
    assert counted(command, str(place / "a.md"), str(place / "broken.md"), code=6) == counted(
        command, str(place / "a.md")
    )


@pytest.mark.parametrize("per_file", [[], ["--per-file"]])
def test_where_nothing_could_be_counted_there_is_no_count(command: Command, place: Path, per_file: list[str]) -> None:
    outcome = command("count", *MINI, *per_file, str(place / "no1"), str(place / "no2"))
    assert (outcome.code, outcome.text, outcome.stderr.count("does not exist")) == (3, "", 2)


def test_an_unreadable_directory_is_reported(place: Path) -> None:
    """As a user without privileges: root may read everything."""
    (place / "deep").chmod(0o700)
    place.chmod(0o755)
    script = (
        "import os; os.setgid(65534); os.setuid(65534)\n"
        "for path, error in found: print(path, error.message if error else '-', sep='\\t')\n"
    )
    before = (
        "from toktier_cli.named_files import named_files\nfound = named_files(['.'], recursive=True, suffixes=())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", before + script],
        cwd=place,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    rows = dict(line.split("\t") for line in done.stdout.splitlines())
    assert rows == {
        "./a.md": "-",
        "./b.txt": "-",
        "./link.md": "-",
        "./deep": "./deep cannot be read: Permission denied",
    }


def test_the_table_and_large_files(command: Command, tmp_path: Path) -> None:
    text = "Größe 12,345 hello world\n" * 200_000  # several parts
    (tmp_path / "large.txt").write_text(text)
    (tmp_path / "small.txt").write_text("hello world\n")
    (tmp_path / "empty.txt").write_text("")
    large = native_family("toktier_mini").count(text)
    table = command("count", *MINI, "--per-file", *(str(tmp_path / f"{n}.txt") for n in ("large", "small", "empty")))
    header, *rows, total = (line.split() for line in table.text.splitlines())
    assert header == ["TOKENS", "BYTES", "TOKENS/BYTE", "FILE"]
    assert rows[0][:3] == [str(large), str(len(text.encode())), f"{large / len(text.encode()):.3f}"]
    assert rows[2][:3] == ["0", "0", "-"]
    assert total[3] == "total"
    assert int(total[0]) == sum(int(row[0]) for row in rows)
    assert command("count", *MINI, "--special", stdin=text.encode()).text == f"{large}\n"


@pytest.mark.parametrize("line", [("--jobs", "0"), ("--suffix", ".md"), ("-", "-")], ids=" ".join)
def test_lines_that_make_no_sense(command: Command, line: tuple[str, ...]) -> None:
    assert command("count", *MINI, *line).code == 2


def test_progress_is_for_terminals_and_never_in_the_data(tmp_path: Path) -> None:
    for i in range(30):
        (tmp_path / f"{i}.txt").write_text("hello world\n" * 50_000)
    code, shown = run_on_terminal(
        "count", *MINI, "-r", str(tmp_path), "--suffix", ".txt", "--jobs", "1", home=tmp_path / "h"
    )
    assert code == 0
    assert shown.replace("\r", "\n").splitlines()[-1].removeprefix("\x1b[K").isdigit()
    assert run("count", *MINI, "-r", str(tmp_path), "--suffix", ".txt", home=tmp_path / "h").stderr == ""


def open_files(pid: int) -> set[str]:
    """Files that a process has open now."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(entry.readlink()))
    return found


def processor_seconds(pid: int) -> float:
    """What a process has used until now, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def processor_seconds_of_children() -> float:
    """Of all that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("files", [1, 400])
def test_an_interrupt_ends_it_at_once(files: int, tmp_path: Path) -> None:
    """Whoever reads a pipe, many files, or both: what is left is not counted first."""
    text = "hello world " * 400_000
    for i in range(files):
        (tmp_path / f"{i:03}.txt").symlink_to(tmp_path / "text")
    (tmp_path / "text").write_text(text if files > 1 else text * 40)
    names = [str(tmp_path / f"{i:03}.txt") for i in range(files)]
    others = processor_seconds_of_children()
    child = subprocess.Popen(
        [sys.executable, "-m", "toktier_cli.main", "count", *MINI, "--jobs", "2", *names],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment(tmp_path / "home"),
        # Whoever starts the tests in the background leaves SIGINT ignored, and a child inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    while str(tmp_path / "text") not in open_files(child.pid):
        assert child.poll() is None, "it was done before it could be interrupted"
    used = processor_seconds(child.pid)
    child.send_signal(signal.SIGINT)
    stdout, stderr = child.communicate(timeout=300)
    assert (child.returncode, stdout, stderr) == (130, "", "error: interrupted\n")
    # Of the processor's time: how long others keep it from running says nothing of what it still counted.
    assert processor_seconds_of_children() - others - used < 5
