"""Completion scripts know every verb and option, hold all words, and complete in the shells that are here."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache, partial
from pathlib import Path

import pytest

from tests.cli.command import check_document, environment, run, run_here
from toktier_cli.app import ARTIFACTS, GPU, SESSION, VERBS
from toktier_cli.verbs import completion
from toktier_cli.verbs.completion import SHELLS


@cache
def script(shell: str) -> str:
    makers = {"bash": completion._bash, "zsh": completion._zsh, "fish": completion._fish}
    return makers[shell](completion._places())


@pytest.mark.parametrize("shell", SHELLS)
def test_the_verb_prints_the_script(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    here = partial(run_here, "completion", shell, home=tmp_path, monkeypatch=monkeypatch, capture=capfdbinary)
    assert here().text == check_document(here("--json"))["script"] == script(shell)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_verb_and_option_is_known_and_nothing_is_started(shell: str) -> None:
    text = script(shell)
    for word in (
        *VERBS,
        *ARTIFACTS,
        *GPU,
        *SESSION,
        "sm_90",
        "qwen3_8b",
        "require_accelerated",
        "fast_cpu",
        "exit-codes",
    ):
        assert word in text
    for option in ("family", "no-tokenizer-fallback", "json", "home", "recursive", "origin", "as"):
        assert f"--{option}" in text or f"-l {option} " in text
    started = [line for line in text.splitlines() if "toktier " in line and ("$(" in line or "`" in line)]
    assert not started


def test_unknown_shells_are_refused(tmp_path: Path) -> None:
    outcome = run("completion", "powershell", home=tmp_path)
    assert outcome.code == 2
    assert "bash, zsh, fish" in outcome.stderr


# what is typed, the last word unfinished: words that must be offered, words that must not
TYPED = [
    (["art"], ["artifacts"], ["encode"]),
    (["artifacts", "f"], ["fetch"], ["list"]),
    (["encode", "--fam"], ["--family"], ["--file"]),
    (["encode", "--policy", "r"], ["reference", "require_accelerated"], ["certified"]),
    (["--json", "artifacts", "fetch", "qwen3_8"], ["qwen3_8b"], ["toktier_mini"]),
    (["certify", "me"], ["merge"], ["run"]),
    (["certify", "toktier_m"], ["toktier_mini"], []),
    (["gpu", "compile", "--arch", "sm_1"], ["sm_100", "sm_120"], ["sm_90"]),
    (["session", "re"], ["remove"], ["list"]),
    (["session", "remove", "--"], ["--store", "--anonymous"], ["--all"]),
    (["completion", "z"], ["zsh"], []),
    (["help", "ex"], ["exit-codes"], []),
]


@pytest.mark.parametrize(("words", "offered", "withheld"), TYPED, ids=lambda v: " ".join(v))
def test_bash_completes(words: list[str], offered: list[str], withheld: list[str], tmp_path: Path) -> None:
    path = tmp_path / "completion"
    path.write_text(script("bash"))
    line = 'set -eu; source "$0"; COMP_WORDS=(toktier "$@"); COMP_CWORD=$#; _toktier; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", line, str(path), *words], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert set(offered) <= set(found)
    assert not set(withheld) & set(found)


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
@pytest.mark.parametrize(("words", "offered", "withheld"), TYPED, ids=lambda v: " ".join(v))
def test_fish_completes(words: list[str], offered: list[str], withheld: list[str], tmp_path: Path) -> None:
    path = tmp_path / "completion"
    path.write_text(script("fish"))
    line = f'source {path}; complete -C "toktier {" ".join(words)}"'
    done = subprocess.run(
        ["fish", "--no-config", "-c", line], capture_output=True, text=True, env=environment(None, HOME=str(tmp_path))
    )
    found = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert set(offered) <= set(found)
    assert not set(withheld) & set(found)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh_reads_the_script(tmp_path: Path) -> None:
    path = tmp_path / "_toktier"
    path.write_text(script("zsh"))
    assert subprocess.run(["zsh", "-n", str(path)]).returncode == 0
