"""Help pages: examples of every verb, each of which the command takes; narrow terminals; typing errors."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cli.command import run_here
from toktier.router.options import HEADINGS, OPTIONS
from toktier_cli.app import ARTIFACTS, CERTIFY, CONFIG, GPU, SERVE, SESSION, VERBS, root
from toktier_cli.examples import EXAMPLES
from toktier_cli.invocation import take_global_options

GROUPS = {"artifacts": ARTIFACTS, "certify": CERTIFY, "gpu": GPU, "session": SESSION, "serve": SERVE, "config": CONFIG}
PATHS = [
    *(verb for verb in VERBS if verb not in GROUPS),
    *(f"{group} {verb}" for group, verbs in GROUPS.items() for verb in verbs),
]


def example_lines() -> Iterator[list[str]]:
    for lines in EXAMPLES.values():
        for line, _ in lines:
            typed = shlex.split(line)[shlex.split(line).index("toktier") + 1 :]
            yield typed[: min((typed.index(sign) for sign in "<>" if sign in typed), default=len(typed))]


def test_every_verb_has_examples_and_no_other_has() -> None:
    assert sorted(EXAMPLES) == sorted(PATHS)
    assert all(EXAMPLES.values())


@pytest.mark.parametrize("typed", list(example_lines()), ids=" ".join)
def test_examples_are_lines_that_the_command_takes(typed: list[str]) -> None:
    _, rest = take_global_options(typed)
    command, name = root(), "toktier"
    while hasattr(command, "verbs"):
        default = [command.default] if command.default and rest and rest[0] not in command.verbs else []
        name, *rest = [*default, *rest]
        command = command.get_command(None, name)
    command.make_context(name, rest)  # raises for what it does not take; runs nothing


@pytest.mark.parametrize("path", ["", *PATHS])
@pytest.mark.parametrize("columns", [40, 100])
def test_help_pages_hold_in_narrow_terminals(
    path: str, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    here = partial(run_here, home=tmp_path, monkeypatch=monkeypatch, capture=capfdbinary)
    outcome = here(*path.split(), "--help")
    assert (outcome.code, outcome.stderr) == (0, "")
    head, _, examples = outcome.text.partition("Examples:\n")
    assert max(map(len, head.splitlines())) <= max(columns, 60)
    for line, purpose in EXAMPLES.get(path, ()):
        assert f"  # {purpose}\n  {line}\n" in examples  # to be copied: never wrapped


@pytest.mark.parametrize(
    ("typed", "remedy"),
    [
        (["help", "encode"], "toktier encode --help"),
        (["help", "nonsense"], "toktier help"),
        (["encode", "--file"], "toktier encode --help"),  # the framework's error knows no verb
        (["session", "list", "--store"], "toktier session list --help"),
        (["inspect", "--text", "x"], "toktier inspect --help"),
    ],
    ids=lambda v: v if isinstance(v, str) else " ".join(v),
)
def test_the_remedy_of_a_line_is_the_help_of_its_verb(
    typed: list[str],
    remedy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    outcome = run_here(*typed, home=tmp_path, monkeypatch=monkeypatch, capture=capfdbinary)
    assert outcome.code == 2
    assert outcome.stderr.splitlines()[1:] == [f"hint: {remedy}"]


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_group_leads_to_its_verbs_and_the_global_options(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    text = run_here(group, "--help", home=tmp_path, monkeypatch=monkeypatch, capture=capfdbinary).text
    assert f"toktier {group} COMMAND --help" in text
    assert "--json" in text
    assert (f"toktier {group} WHAT is short for toktier {group} run WHAT" in text) == (group in ("certify", "serve"))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["encod", "x"], "encode"),
        (["artifacts", "fetsh"], "fetch"),
        (["encode", "x", "--famly", "toktier_mini"], "--family"),
        (["count", "--recursiv"], "--recursive"),
        (["serve", "--upstreem", "http://h"], "--upstream"),
        (["encode", "x", "--family", "qwen38b"], "qwen3_8b"),
        (["serve", "rpeort"], "report"),
        (["help", "exitcodes"], "exit-codes"),
        (["schema", "encod"], "encode"),
        (["encode", "x", "--family", "toktier_mini", "--policy", "certfied"], "certified"),
    ],
    ids=lambda v: v if isinstance(v, str) else " ".join(v),
)
def test_typing_errors_are_told_what_was_meant(
    typed: list[str],
    meant: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    outcome = run_here(*typed, home=tmp_path, monkeypatch=monkeypatch, capture=capfdbinary)
    assert outcome.code in (2, 3)
    assert meant in outcome.stderr.splitlines()[0]


@pytest.mark.parametrize("typed", [("serve", "--help"), ("serve", "run", "--help")], ids=" ".join)
def test_the_help_of_serve_has_every_option_under_its_heading(
    typed: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    lines = run_here(*typed, home=tmp_path, monkeypatch=monkeypatch, capture=capfdbinary).text.splitlines()
    headings = [line.removesuffix(":") for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert headings[: len(HEADINGS) + 1] == [*HEADINGS.values(), "Options"]
    for option in OPTIONS:
        told = [line for line in lines if line.startswith("  -") and f"--{option.name}" in re.split("[ ,]", line)]
        assert len(told) == 1, option.name
    for name, heading in HEADINGS.items():
        assert f"--{name} " in lines[lines.index(f"{heading}:") + 1]
