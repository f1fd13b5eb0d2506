"""Whole conversations with the command: what was typed, stdout, stderr and exit code together, against golden files.

golden/NAME.txt holds the lines typed (`$ toktier …`) and what followed. UPDATE_CONVERSATIONS=1 writes them anew, to be
read before they are committed. Times, paths and figures that differ between hosts are replaced; nothing else is.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.cli.command import Outcome, check_document, run, run_here
from tests.sessions.model import FINGERPRINT, change
from tests.support.material import SMALL_DIR
from toktier import resources
from toktier.sessions.store import SessionStore

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.txt"))
MINI = resources.tables_dir() / "artifacts" / "toktier_mini" / "tokenizer.json"

REPLACED = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "<time>"),
    (re.compile(r'"duration_ms": \d+'), '"duration_ms": <number>'),
    (re.compile(r'"processor": ("[^"]*"|null)'), '"processor": <name>'),
    (re.compile(r'"(load_ms|best|median)": [0-9.]+'), r'"\1": <number>'),
    (re.compile(r'"name": "tokenizers", "version": "[^"]*"'), '"name": "tokenizers", "version": "<version>"'),
    (re.compile(r'"compiler": "[0-9a-f]{64}"'), '"compiler": "<digest>"'),
    (re.compile(r'"engine_identity": "[0-9a-f]{64}"'), '"engine_identity": "<digest>"'),
    (re.compile(r'"evidence": "[0-9a-f]{64}"'), '"evidence": "<digest>"'),
    (re.compile(r'"engine_bound": (true|false)'), '"engine_bound": <whether>'),
    (re.compile(r'"registry": "sha256:[0-9a-f]{64}"'), '"registry": "<digest>"'),
    (re.compile(r'"(disk_bytes|bytes_before|bytes_after)": \d+'), r'"\1": <number>'),
    (re.compile(r"[0-9.]+ kB on disk before, [0-9.]+ kB now"), "<size> on disk before, <size> now"),
    (re.compile(r'"readings": \{"[^}]*\}'), '"readings": {<counts>}'),
    (re.compile(r"(evidence of the registry, level quick), [0-9,]+ texts"), r"\1, <count> texts"),
    (re.compile(r'"fingerprint": "[0-9a-f]{64}"'), '"fingerprint": "<digest>"'),
    (re.compile(r"^fingerprint  [0-9a-f]{64}$", re.MULTILINE), "fingerprint  <digest>"),
    (re.compile(r", fingerprint [0-9a-f]{64}$", re.MULTILINE), ", fingerprint <digest>"),
)


def prepare(place: Path) -> None:
    """The files that the conversations speak of."""
    mini = MINI.read_bytes()
    shutil.copy(MINI, place / "mini.json")
    shutil.copy(SMALL_DIR / "llama_like.json", place / "other.json")
    (place / "truncated.json").write_bytes(mini[:-1000])
    (place / "empty.json").write_bytes(b"")
    (place / "config.json").write_bytes(b'{"hidden_size": 4096}')
    (place / "a.txt").write_text("hello world\n")
    (place / "b.txt").write_text("Größe 12,345\n")
    (place / "c.bin").write_bytes(b"ok \xff")
    (place / "wordpiece.json").write_text(
        '{"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "hello": 1}, "unk_token": "[UNK]",'
        ' "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}}'
    )
    pairs = [
        ("The sum is 4.",) * 2,
        ("Well, it is.", "Well: it is."),
        ("It is 4.", "It is 5."),
        ("Open it.", "It shuts."),
    ]
    (place / "pairs.jsonl").write_text("".join(json.dumps({"cached": a, "uncached": b}) + "\n" for a, b in pairs))
    (place / "router.toml").write_text(
        'upstream = "http://127.0.0.1:8080"\ntokenizer-file = "mini.json"\naccess-log = true\n'
    )
    (place / "misspelt.toml").write_text('upstream = "http://127.0.0.1:8080"\nmax_concurrent = 5\n')
    (place / "corpus" / "deep").mkdir(parents=True)
    (place / "corpus" / "one.md").write_text("one two three\n")
    (place / "corpus" / "deep" / "two.txt").write_text("four five six\n")


def prepare_stores(place: Path) -> None:
    """A store as a program left it, one with a damaged session, and one of a later version."""
    for name in ("chats", "damaged", "later"):
        with SessionStore(place / name) as store:
            for session, texts in (("chat-42", ["hello ", "world "]), ("Müller's", ["x" * 5000]), ("a\x1b[2J", [])):
                stored = store.open(session, FINGERPRINT, keep_text=session == "chat-42")
                for text in texts:
                    stored.append(change(stored.state.revision, text, "and"))
            store.remember(FINGERPRINT, [change(0, "y" * 5000)])
    for name, statement in (
        ("damaged", "UPDATE step SET ids = x'00' WHERE number >> 32 = 2"),
        ("later", "PRAGMA user_version = 2"),
    ):
        with sqlite3.connect(place / name / "sessions.db") as connection:
            connection.execute(statement)
        connection.close()


def normal(text: str, place: Path) -> str:
    text = text.replace(str(place), "<place>")
    for pattern, put in REPLACED:
        text = pattern.sub(put, text)
    return text


def answer(outcome: Outcome, place: Path, json: bool) -> str:
    stdout = outcome.text
    if json:
        check_document(outcome)
    parts = [normal(stdout, place)]
    if stdout and not stdout.endswith("\n"):
        parts.append("<no line end>\n")
    parts += [f"stderr: {line}\n" for line in normal(outcome.stderr, place).splitlines()]
    if outcome.code:
        parts.append(f"exit code: {outcome.code}\n")
    return "".join(parts)


Run = Callable[..., Outcome]


def check_conversation(name: str, place: Path, runner: Run) -> None:
    path = GOLDEN / f"{name}.txt"
    wanted = path.read_text("utf-8")
    prepare(place)
    if name == "sessions":
        prepare_stores(place)
    said: list[str] = []
    for line in wanted.splitlines():
        if line.startswith("$ "):
            typed = shlex.split(line[2:])
            stdin = b""
            if "<<<" in typed:  # one text for stdin, without line end
                stdin = typed[typed.index("<<<") + 1].encode()
                typed = typed[: typed.index("<<<")]
            assert typed[0] == "toktier"
            # A loaded machine may take longer than the default for a check that takes milliseconds.
            patient = ("--timeout", "600") if typed[1:2] == ["doctor"] else ()
            outcome = runner(*typed[1:], *patient, home=place / "home", stdin=stdin)
            said.append(f"{line}\n{answer(outcome, place, '--json' in typed)}\n")
        elif line.startswith("# "):
            said.append(f"{line}\n")
    got = "".join(said)
    if os.environ.get("UPDATE_CONVERSATIONS") == "1":
        path.write_text(got, "utf-8")
        return
    if got != wanted:
        difference = difflib.unified_diff(wanted.splitlines(), got.splitlines(), "golden", "got", lineterm="")
        pytest.fail("\n".join(difference))


@pytest.mark.parametrize("name", NAMES)
def test_conversation(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """In this process, so that all of them are quick."""
    monkeypatch.chdir(tmp_path)
    check_conversation(name, tmp_path, partial(run_here, monkeypatch=monkeypatch, capture=capfdbinary))


@pytest.mark.ci
@pytest.mark.parametrize("name", NAMES)
def test_conversation_with_real_processes(name: str, tmp_path: Path) -> None:
    check_conversation(name, tmp_path, partial(run, cwd=tmp_path))


def test_there_are_conversations() -> None:
    assert len(NAMES) >= 6
