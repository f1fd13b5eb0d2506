"""What is read as input: all of files and pipes, nothing of devices, and errors for places that are not there."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import check_document, environment, run
from tests.support.material import ROOT
from toktier_cli import inputs

MINI = ("--family", "toktier_mini")


def by_shell(line: str, home: Path, cwd: Path = ROOT) -> tuple[int, str, str]:
    """A line of bash with `toktier` in it, in 2 GiB of memory: what would read without end fails here, and soon."""
    command = f"{shlex.quote(sys.executable)} -m toktier_cli.main"
    script = f'ulimit -v 2097152; toktier() {{ {command} "$@"; }}; {line}'
    env = environment(home, PYTHONPATH=str(ROOT))
    done = subprocess.run(["bash", "-c", script], capture_output=True, cwd=cwd, env=env, timeout=300)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize(
    "line",
    [
        "toktier encode --family toktier_mini --input /dev/zero",
        "toktier encode --family toktier_mini < /dev/zero",
        "toktier decode --family toktier_mini --input /dev/urandom",
        "toktier decode --family toktier_mini - < /dev/zero",
        "toktier count --family toktier_mini /dev/zero",
        "toktier count --family toktier_mini < /dev/zero",
    ],
)
def test_devices_are_refused(line: str, tmp_path: Path) -> None:
    code, out, err = by_shell(line, tmp_path)
    assert (code, out) == (2, "")
    assert "is a device" in err
    assert "hint: " in err


def test_pipes_and_the_null_device_are_read(tmp_path: Path) -> None:
    assert by_shell("toktier count --family toktier_mini /dev/null", tmp_path)[:2] == (0, "0\n")
    direct = by_shell("toktier encode --family toktier_mini 'hello world'", tmp_path)
    assert direct[0] == 0
    for line in (
        "printf 'hello world' | toktier encode --family toktier_mini",
        "toktier encode --family toktier_mini --input <(printf 'hello world')",
        "mkfifo f; (printf 'hello world' > f &); toktier encode --family toktier_mini --input f",
    ):
        assert by_shell(line, tmp_path, cwd=tmp_path) == direct


def test_a_pipe_is_read_up_to_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_INPUT_BYTES", 3_000_000)
    for size, fits in ((3_000_000, True), (3_000_001, False)):
        reader, writer = os.pipe()
        child = subprocess.Popen(["head", "-c", str(size), "/dev/zero"], stdout=writer)
        os.close(writer)
        try:
            if fits:
                assert len(inputs.read_file(f"/dev/fd/{reader}")) == size
            else:
                with pytest.raises(inputs.UsageError, match="more than 3,000,000 bytes"):
                    inputs.read_file(f"/dev/fd/{reader}")
        finally:
            os.close(reader)
            child.wait(60)
    (tmp_path / "big").write_bytes(bytes(3_000_001))
    with pytest.raises(inputs.UsageError, match="more than"):
        inputs.read_file(str(tmp_path / "big"))


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("encode --file tokenizer.json hi", 3),
        ("inspect x/tokenizer.json", 3),
        ("inspect ../tokenizer.json", 3),
        ("encode --home rel --family toktier_mini hi", 2),
        ("config show --home ./rel", 2),
        ("encode --family toktier_mini hi", 0),
        ("count --family toktier_mini a.txt", 3),
        ("artifacts import .", 3),
        ("artifacts verify ./", 3),
        ("artifacts list", 0),
    ],
)
def test_a_current_directory_that_was_deleted(line: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    line = f"cd gone; rmdir ../gone; toktier {line}"
    assert by_shell(line, tmp_path / "home", cwd=tmp_path)[0] == code


@pytest.mark.parametrize("name", ["n" * 300, "./" + "d/" * 3000, "\x1b[2Jx.json", "nö\udcff.json"], ids=range(4))
@pytest.mark.parametrize(
    "line",
    [
        ("encode", "--file", "{}", "hi"),
        ("encode", "--family", "{}", "hi"),
        ("encode", *MINI, "--input", "{}"),
        ("count", *MINI, "{}"),
        ("inspect", "{}"),
        ("artifacts", "import", "{}"),
        ("artifacts", "verify", "{}"),
        ("artifacts", "fetch", "qwen3_8b", "--from", "{}"),
        ("artifacts", "remove", "{}"),
        ("{}",),
    ],
    ids=" ".join,
)
def test_names_that_no_file_can_have(line: tuple[str, ...], name: str, tmp_path: Path) -> None:
    outcome = run(*(name if word == "{}" else word for word in line), home=tmp_path)
    assert outcome.code in (2, 3, 7)
    assert outcome.stdout == b"" or line[1] == "verify"
    shown = outcome.stderr + outcome.text
    assert all(text.isprintable() and len(text) < 1600 for text in shown.splitlines()), shown


def test_a_home_that_no_directory_can_be(tmp_path: Path) -> None:
    for home in (tmp_path / ("n" * 300), tmp_path / ("d/" * 3000)):
        outcome = run("encode", *MINI, "hi", "--json", home=home)
        assert outcome.code == 2
        assert "config.toml" in check_document(outcome)["error"]["message"]


def test_file_names_are_escaped_in_what_is_printed(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2Jb\n.txt"
    path.write_text("hello")
    outcome = run("count", "--per-file", *MINI, str(path), home=tmp_path)
    assert outcome.code == 0
    assert "\x1b" not in outcome.text
    assert "a\\x1b[2Jb\\n.txt" in outcome.text
