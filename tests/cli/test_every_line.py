"""What holds for any line: no trace, exit codes of the table, no secret in any output, nothing written outside the
roots, any locale, and no colour."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import pytest

from tests.cli.command import Outcome, check_document, environment, run, run_here
from tests.cli.test_contract import LINES
from tests.support.material import ROOT
from toktier import resources
from toktier.errors import ExitCode
from toktier_cli.verbs import completion

MINI_FILE = resources.tables_dir() / "artifacts" / "toktier_mini" / "tokenizer.json"
# Nothing that could name a place outside the current directory and be written to.
WORDS = [
    "toktier_mini", "mini.json", "qwen3_8b", "nope", "a.txt", "b.bin", ".", "-", "--", "", "0", "-1", "1", "1e9", "nan",
    "é", "\udcff", "x" * 300, "*", "[", "**/*.txt", "local/x", "a/b", "{}", "%s", "auto", "hf", "fast_cpu", "gpu",
    "u32", "supported", "/dev/null", "/dev/zero", "/proc/self/mem", "encode", "artifacts",
]  # fmt: skip
CONFIGS = [
    None, "", "offline = true\n", 'tokenizer = "hf"\n', "x = [", "log_level = 3\n", "\0", 'log_level = "debug"\n',
    'shared_caches = ["relative"]\n', "[toktier]\n", "offline = 1e999\n",
]  # fmt: skip
PER_SEED = 50


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory: a tokenizer, a text, and bytes that are none."""
    where = tmp_path / "place"
    where.mkdir()
    (where / "mini.json").write_bytes(MINI_FILE.read_bytes())
    (where / "a.txt").write_text("hello world\n")
    (where / "b.bin").write_bytes(b"ok \xff")
    monkeypatch.chdir(where)
    return where


@cache
def places() -> dict[str, list[str]]:
    """Every verb with the spellings of its options."""
    return {
        path: [spelling for option in place.options for spelling in option.spellings]
        for path, place in completion._places().items()
        if path != "doctor"  # has lines of its own
    }


def random_line(chance: random.Random) -> list[str]:
    path, options = chance.choice(list(places().items()))
    # A tokenizer that is there would be certified, which takes a minute; an address would be asked.
    words = [w for w in WORDS if not path.startswith("certify") or w not in ("toktier_mini", "mini.json", "1", "1e9")]
    line = [*path.split(), *(["--offline"] if path.startswith("artifacts") else [])]
    if path in ("encode", "decode", "count") and chance.random() < 0.7:
        line += ["--family", chance.choice(["toktier_mini", "mini.json", "nope"])]
    for _ in range(chance.randrange(6)):
        option = chance.choice(options)
        line += chance.choice([[option], [option, chance.choice(words)], [chance.choice(words)]])
    return [word for word in line if word not in ("--out", "--home", "--wheel", "--bundle")]


@pytest.mark.parametrize("seed", range(4))
def test_random_lines_and_configurations(
    seed: int, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    chance = random.Random(seed)
    here = partial(run_here, monkeypatch=monkeypatch, capture=capfdbinary)
    codes = set()
    for number in range(PER_SEED):
        home = tmp_path / f"home{number}"
        config = chance.choice(CONFIGS)
        if config is not None:
            home.mkdir()
            (home / "config.toml").write_text(config)
        line = random_line(chance)
        outcome = here(*line, home=home, stdin=chance.choice([b"", b"hello", b"\xff", b"1 2 3"]))
        codes.add(outcome.code)
        assert outcome.code in set(ExitCode), line
        assert outcome.code != ExitCode.INTERNAL, (line, config, outcome.stderr)
        assert config == CONFIGS[7] or "Traceback" not in outcome.stderr, line
        if "--json" in line[: line.index("--")] if "--" in line else "--json" in line:
            check_document(outcome)
        elif outcome.code not in (ExitCode.DONE, ExitCode.NO, ExitCode.INCOMPLETE):
            assert "error: " in outcome.stderr, line
    assert {ExitCode.DONE, ExitCode.USAGE} <= codes, "the lines do not get far enough"


CANARY = "c4n4ryS3cret"
SECRETS = {
    "HF_TOKEN": f"hf_{CANARY}",
    "HUGGING_FACE_HUB_TOKEN": f"hf_{CANARY}",
    "HTTPS_PROXY": f"http://user:{CANARY}@127.0.0.1:9",
    "PIP_INDEX_URL": f"http://user:{CANARY}@127.0.0.1:9/simple",
    "AWS_SECRET_ACCESS_KEY": CANARY,
}
SECRET_LINES = [
    ("artifacts", "fetch", "qwen3_8b", "--from", f"http://user:{CANARY}@127.0.0.1:9/mirror"),
    ("artifacts", "fetch", "qwen3_8b", "--from", f"http://127.0.0.1:9/mirror?token={CANARY}"),
    ("artifacts", "fetch", "qwen3_8b", "--timeout", "2"),
    ("artifacts", "fetch", "qwen3_8b", "--from", "pypi", "--timeout", "2"),
]


def known_lines() -> Iterator[tuple[str, ...]]:
    for line, _ in LINES:
        if line[:2] != ("artifacts", "kit") and "http://x" not in line:
            yield line


@pytest.mark.parametrize("flag", ["--json", "--quiet"])
def test_no_secret_of_the_environment_is_in_any_output(
    flag: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    # run_here drops what begins with HF_ and PIP_ from the environment: put in front of it, they stay.
    monkeypatch.setattr("tests.cli.command.environment", lambda home: {**SECRETS, "TOKTIER_HOME": str(home)})
    for line in (*known_lines(), *SECRET_LINES):
        outcome = run_here(*line, flag, home=tmp_path / "home", monkeypatch=monkeypatch, capture=capfdbinary)
        assert CANARY not in outcome.text + outcome.stderr, line


def listing(*roots: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of everything below; directories by their names alone."""
    found = {}
    for root in roots:
        for folder, _, files in os.walk(root):
            found[folder] = (0, 0)
            for name in files:
                status = os.lstat(os.path.join(folder, name))
                found[os.path.join(folder, name)] = (status.st_size, status.st_mtime_ns)
    return found


def test_nothing_is_written_outside_the_roots(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Every line with a home of its own: the current directory, HOME and the temporary directory stay as they were."""
    user, temporary = tmp_path / "user", tmp_path / "tmp"
    user.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("TMPDIR", str(temporary))
    before = listing(place, user, temporary)
    for line in known_lines():
        run_here(*line, home=tmp_path / "home", monkeypatch=monkeypatch, capture=capfdbinary)
        assert listing(place, user, temporary) == before, line


def test_without_a_home_of_its_own_it_writes_below_the_users_two_directories(place: Path, tmp_path: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    outcome = run("encode", "--file", str(place / "mini.json"), "hi", home=None, cwd=place, env={"HOME": str(user)})
    assert outcome.code == 0
    written = [path for path in listing(user) if path != str(user)]
    allowed = (f"{user}/.cache/toktier", f"{user}/.local/state/toktier")
    assert written
    assert all(path.startswith(allowed) or path in (f"{user}/.cache", f"{user}/.local") for path in written)


TEXT = "Größe 日本語"


@pytest.mark.parametrize(
    "env", [{"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"LANG": "xx_YY.none"}, {"PYTHONUTF8": "0", "LC_ALL": "C"}]
)
def test_any_locale_gives_the_same_bytes(env: dict[str, str], place: Path, tmp_path: Path) -> None:
    plain = encode_and_back(tmp_path, {"LC_ALL": "C.UTF-8"})
    here = encode_and_back(tmp_path, env)
    assert here[:2] == plain[:2]
    assert here[2].code == plain[2].code
    if "PYTHONUTF8" not in env:  # switched off, the interpreter itself has no letters for such a name
        assert here[2].stderr == plain[2].stderr
    assert plain[1].stdout.decode("utf-8") == TEXT


def encode_and_back(home: Path, env: dict[str, str]) -> tuple[Outcome, Outcome, Outcome]:
    ids = run("encode", "--family", "toktier_mini", TEXT, home=home, env=env)
    back = run("decode", "--family", "toktier_mini", *ids.text.split(), home=home, env=env)
    absent = run("count", "--family", "toktier_mini", "größe.txt", home=home, env=env)
    return ids, back, absent


@pytest.mark.parametrize(
    "env", [{}, {"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}, {"TERM": "dumb"}, {"CLICOLOR_FORCE": "1"}]
)
def test_output_is_plain_whatever_colour_is_asked_for(env: dict[str, str], tmp_path: Path) -> None:
    for line in (("--help",), ("encode", "--help"), ("inspect", "toktier_mini"), ("inspekt",)):
        outcome = run(*line, home=tmp_path, env=env)
        assert "\x1b" not in outcome.text + outcome.stderr


def test_a_reader_that_leaves_ends_a_stream_quietly(tmp_path: Path) -> None:
    line = f'"{sys.executable}" -m toktier_cli.main encode --family toktier_mini < "$0" | head -c 100'
    text = tmp_path / "text"
    text.write_text("hello world\n" * 500_000)
    script = f"set -o pipefail; {line} > /dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script, str(text)], capture_output=True, text=True, cwd=ROOT, env=environment(tmp_path / "home")
    )
    assert (done.stdout, done.stderr) == ("141\n", "")
