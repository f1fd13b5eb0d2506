"""200 random configurations and lines: no traceback, exit codes of the table, and every report fits its schema."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.cli.command import check_document, environment, run_here
from toktier.errors import ExitCode

PER_SEED = 25
WORDS = [
    "",
    "0",
    "1",
    "true",
    "offline",
    "é",
    "/",
    "/nonexistent",
    "~",
    "~/x",
    "x" * 300,
    "\udcff",
    "{}",
    "a=b",
    "-1",
    "nan",
]
OPTIONS = [
    ("--check",), ("--check=warn",), ("--check=",), ("--only", "gpu"), ("--only", "python,family"), ("--only", ","),
    ("--skip", "artifacts"), ("--skip", "config.settings"), ("--list",), ("--no-redact",), ("--timeout", "0.01"),
    ("--timeout", "nan"), ("--timeout", "inf"), ("--timeout", "-3"), ("--family", "toktier_mini"), ("--family", "nope"),
    ("--family", ""), ("--family", "/dev/zero"), ("--family", "."), ("--family", "local/x"), ("--compare", "/dev/null"),
    ("--compare", "absent"), ("--bundle", "/proc/x.tar"), ("--bundle", ""), ("--offline",), ("--quiet",), ("--", "x"),
]  # fmt: skip
VARIABLES = [
    "TOKTIER_OFFLINE", "TOKTIER_TOKENIZER", "TOKTIER_DISABLE_GPU", "TOKTIER_DIAGNOSTICS", "TOKTIER_SHARED_CACHES",
    "TOKTIER_CACHE_MODE", "TOKTIER_STORE", "TOKTIER_X", "HF_ENDPOINT", "HOME", "XDG_CACHE_HOME", "USER", "HOSTNAME",
    "NO_COLOR",
]  # fmt: skip
CONFIGS = [
    None,
    "",
    "offline = true\n",
    "x = [",
    "tokenizer = 3\n",
    'shared_caches = ["/nonexistent"]\n',
    "\0",
    'tokenizer = "nope"\n',
]


@pytest.mark.parametrize("seed", range(8))
def test_random_lines(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    chance = random.Random(seed)
    for number in range(PER_SEED):
        home = tmp_path / str(number)
        home.mkdir()
        config = chance.choice(CONFIGS)
        if config is not None:
            (home / "config.toml").write_text(config)
        if chance.random() < 0.2:
            (home / chance.choice(["cache", "state"])).write_text("a file")
        environ = {name: chance.choice(WORDS) for name in chance.sample(VARIABLES, chance.randrange(4))}
        line = [word for option in chance.sample(OPTIONS, chance.randrange(4)) for word in option]
        before = sorted(os.listdir(home))
        with monkeypatch.context() as patch:
            patch.setattr("tests.cli.command.environment", lambda home, e=environ, **_: environment(home, **e))
            outcome = run_here("doctor", "--json", *line, home=home, monkeypatch=patch, capture=capfdbinary)
        where = f"seed {seed} number {number}: {line} {environ} {config!r}"
        assert outcome.code in set(ExitCode) - {ExitCode.INTERNAL}, where
        assert "Traceback" not in outcome.stderr, where
        document = check_document(outcome) if "--" not in line or outcome.stdout else None
        if document is not None and document["schema"] == "toktier.doctor":
            crashed = [c for c in document["checks"] if any(r["code"] == "CHECK_CRASHED" for r in c["reasons"])]
            assert not crashed, (where, crashed)
        assert sorted(os.listdir(home)) == before, where
