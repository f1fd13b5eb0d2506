"""Files that are no good: one sentence with file, size and place, the right exit code, nothing kept; the good one works
right afterwards, with nothing to clear by hand.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import check_document, run
from toktier import resources
from toktier.artifacts.pins import shipped_pins

MINI = resources.tables_dir() / "artifacts" / "toktier_mini" / "tokenizer.json"


def _wordpiece(data: bytes) -> bytes:
    document = json.loads(data)
    document |= {"normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None, "added_tokens": []}
    document["model"] = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {"[UNK]": 0, "hello": 1},
    }
    return json.dumps(document).encode()


# how a good file is spoilt, exit code of loading it, what the sentence must say
BAD: dict[str, tuple[Callable[[bytes], bytes], int, str]] = {
    "empty": (lambda d: b"", 5, "empty"),
    "one byte short": (lambda d: d.rstrip()[:-1], 5, "ends early"),
    "cut in the vocabulary": (lambda d: d[: len(d) // 2], 5, "ends early"),
    "cut in a string": (lambda d: d[: d.index(b'"vocab"') + 4], 5, "ends early"),
    "not JSON": (lambda d: b"<!doctype html><title>404</title>", 5, "malformed"),
    "a pointer in its place": (lambda d: b"version https://git-lfs.github.com/spec/v1\nsize 11422654\n", 5, "byte 0"),
    "zeros": (lambda d: bytes(len(d)), 5, "byte 0"),
    "not UTF-8": (lambda d: d[:3000] + b"\xff" + d[3001:], 5, "byte 3,000"),
    "deeply nested": (lambda d: b'{"model":' * 100_000, 5, "nested too deeply"),
    "something after it": (lambda d: d + b"}", 5, "byte"),
    "a flipped bit in a key": (lambda d: d.replace(b'"vocab"', b'"Vocab"'), 2, "model.vocab"),
    "another JSON document": (lambda d: b'{"hidden_size": 4096, "num_layers": 36}', 2, "model"),
    "an array": (lambda d: b"[1, 2, 3]", 2, "array"),
    "a string": (lambda d: b'"tokenizer"', 2, "where an object is needed"),
    "a vocabulary that is none": (lambda d: re.sub(rb'"vocab": ?\{', b'"vocab":7,"x":{', d), 2, "model.vocab"),
}  # fmt: skip


def files_below(home: Path) -> list[Path]:
    """What was kept, but for hints about the file itself and the installation."""
    return [p for p in home.rglob("*") if p.is_file() and p.parent.name not in ("sources", "installations")]


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_refused_in_one_sentence_and_nothing_is_kept(tmp_path: Path, kind: str) -> None:
    spoil, code, said = BAD[kind]
    path, home = tmp_path / "tokenizer.json", tmp_path / "home"
    path.write_bytes(spoil(MINI.read_bytes()))
    outcome = run("encode", "--file", str(path), "hello", home=home)
    assert (outcome.code, outcome.stdout) == (code, b"")
    message = outcome.stderr.splitlines()[0]
    assert message.startswith("error: ")
    assert str(path) in message
    assert f"{path.stat().st_size:,}" in message
    assert said in message
    assert files_below(home) == []
    imported = run("artifacts", "import", str(path), "--json", home=home)
    assert imported.code == code
    assert check_document(imported)["error"]["code"] in ("ARTIFACT_DAMAGED", "NOT_A_TOKENIZER")
    assert files_below(home) == []
    if kind in ("empty", "one byte short", "a flipped bit in a key"):
        shutil.copy(MINI, path)
        again = run("encode", "--file", str(path), "hello", home=home)
        assert again.code == 0, "the whole file must load right afterwards"
        assert again.stdout == run("encode", "--family", "toktier_mini", "hello", home=home).stdout


def test_verify_names_a_bad_file_too(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    shutil.copy(MINI, good)
    bad.write_bytes(MINI.read_bytes()[:-100])
    outcome = run("artifacts", "verify", str(good), str(bad), "--json", home=tmp_path / "home")
    assert outcome.code == 5
    entries = check_document(outcome)["paths"]
    assert [(e["exit_code"], bool(e["files"])) for e in entries] == [(0, True), (5, False)]
    assert "ends early" in entries[1]["error"]["message"]


def test_a_tokenizer_beyond_the_compiler_is_served_by_the_reference_with_one_warning(tmp_path: Path) -> None:
    path = tmp_path / "wordpiece.json"
    path.write_bytes(_wordpiece(MINI.read_bytes()))
    outcome = run("encode", "--file", str(path), "hello", home=tmp_path / "home")
    assert (outcome.code, outcome.text) == (0, "1\n")
    assert outcome.stderr.count("warning: ") == 1
    assert "WordPiece" in outcome.stderr
    assert "model.type" in outcome.stderr
    for option in (["--policy", "require_accelerated"], ["--no-tokenizer-fallback"]):
        refused = run("encode", "--file", str(path), "hello", *option, home=tmp_path / "home")
        assert refused.code == 4
        assert "model.type" in refused.stderr
    inspected = run("inspect", str(path), "--json", home=tmp_path / "home")
    document = check_document(inspected)
    assert document["program"]["unsupported"]["path"] == "model.type"
    assert {row["policy"]: row["backend"] for row in document["serves"]}["certified"] == "hf"


def test_added_tokens_that_the_reference_leaves_undefined_are_a_usage_error_that_names_them(tmp_path: Path) -> None:
    document = json.loads(MINI.read_bytes())
    document["normalizer"] = {"type": "NFC"}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    base = 1 + max(document["model"]["vocab"].values())
    extra = ("caf\u00e9x", "cafe\u0301x")
    document["added_tokens"] += [{"id": base + 100 + i, "content": c, **flags} for i, c in enumerate(extra)]
    path = tmp_path / "collide.json"
    path.write_text(json.dumps(document), "utf-8")
    outcome = run("encode", "--file", str(path), "hello", "--json", home=tmp_path / "home")
    assert outcome.code == 2
    assert check_document(outcome)["error"]["code"] == "UNSUPPORTED_CONFIG"
    for content in extra:
        assert content in outcome.text or ascii(content)[1:-1] in outcome.text


@pytest.mark.ci
@pytest.mark.parametrize("damage", ["empty", "cut", "flipped"])
def test_a_damaged_blob_is_never_handed_out_though_its_program_is_at_hand(
    tmp_path: Path, damage: str, request: pytest.FixtureRequest
) -> None:
    shared: Path = request.getfixturevalue("shared")
    home = tmp_path / "home"
    brought = run("artifacts", "import", str(shared / "artifacts" / "deepseek_v4.json.zst"), home=home)
    assert brought.code == 0, brought.stderr
    pin = shipped_pins().family("deepseek_v4_flash").tokenizer
    blob = next(home.rglob(pin.sha256))
    data = blob.read_bytes()
    assert run("encode", "--family", "deepseek_v4_flash", "hello", home=home).code == 0  # compiles and keeps a program
    at = data.index(b'"vocab"') + 5000
    blob.write_bytes(
        {"empty": b"", "cut": data[:-1], "flipped": data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]}[damage]
    )
    for _ in range(2):
        refused = run("encode", "--family", "deepseek_v4_flash", "hello", home=home)
        assert (refused.code, refused.stdout) == (5, b"")
        assert str(blob) in refused.stderr
    assert run("artifacts", "verify", "deepseek_v4_flash", home=home).code == 5
    assert run("encode", "--family", "toktier_mini", "hello", home=home).code == 0
    repaired = run("artifacts", "fetch", "deepseek_v4_flash", "--from", str(shared / "artifacts"), home=home)
    assert repaired.code == 0, repaired.stderr
    assert "replaced" in repaired.text
    assert run("encode", "--family", "deepseek_v4_flash", "hello", home=home).code == 0


def test_unknown_families_name_near_ones_and_the_way_to_all(tmp_path: Path) -> None:
    for verb in (["encode", "x", "--family"], ["count", "--family"], ["artifacts", "fetch"], ["inspect"]):
        outcome = run(*verb, "qwen3-8b", home=tmp_path)
        assert outcome.code == 3
        assert "qwen3_8b" in outcome.stderr
        assert "toktier artifacts list --available" in outcome.stderr
