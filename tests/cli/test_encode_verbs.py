"""encode, decode and count give what the package gives, for every way in and every form out."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import toktier
from tests.cli.command import Outcome, check_document, run, run_here, run_on_terminal
from tests.support.material import Artifacts, small_tokenizers
from tests.support.native_tokenizers import FORCED_LINE, native_family, native_file

MINI = ("--family", "toktier_mini")
TEXTS = ["", "hello world", " ", "\n", "  two  blanks\r\n", "naïve café, 日本語 and 👩‍👩‍👧 \x00", "<|endoftext|>x"]


@pytest.fixture(scope="module")
def tok(tmp_path_factory: pytest.TempPathFactory) -> toktier.Tokenizer:
    return native_family("toktier_mini", tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


Command = Callable[..., Outcome]


@pytest.fixture
def command(home: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    """The command in this process; other modules run it as a process of its own."""
    return partial(run_here, home=home, monkeypatch=monkeypatch, capture=capfdbinary)


@pytest.mark.parametrize("text", TEXTS)
def test_every_way_in_gives_the_same_ids(tok: toktier.Tokenizer, command: Command, tmp_path: Path, text: str) -> None:
    ids = tok.encode(text).ids
    line = " ".join(map(str, ids)) + "\n"
    (tmp_path / "t.txt").write_bytes(text.encode())
    assert command("encode", *MINI, "-", stdin=text.encode()).text == line
    assert command("encode", *MINI, stdin=text.encode()).text == line
    assert command("encode", *MINI, "--input", str(tmp_path / "t.txt")).text == line
    if "\0" not in text:
        assert command("encode", *MINI, "--", text).text == line


def test_forms_of_output(tok: toktier.Tokenizer, command: Command) -> None:
    text = TEXTS[5]
    enc = tok.encode(text, add_special_tokens=True)
    raw = command("encode", *MINI, "-", "--special", "--format", "u32", stdin=text.encode())
    assert raw.stdout == struct.pack(f"<{len(enc)}I", *enc.ids)
    rows = command("encode", *MINI, "-", "--special", "--offsets", stdin=text.encode()).text.splitlines()
    assert [tuple(map(int, row.split("\t")[:3])) for row in rows] == [
        (i, *pair) for i, pair in zip(enc.ids, enc.offsets, strict=True)
    ]
    outcome = command("encode", *MINI, "-", "--special", "--offsets", "--explain", "--json", stdin=text.encode())
    document = check_document(outcome)
    assert (document["ids"], document["count"], document["tokens"]) == (enc.ids, len(enc), enc.tokens)
    assert [tuple(pair) for pair in document["offsets"]] == enc.offsets
    assert document["artifact_sha256"] == tok.artifact_sha256
    assert document["backend"] == document["explain"]["last_execution_backend"] == "fast_cpu"


def test_the_engine_and_the_reference_can_both_be_asked_for(command: Command) -> None:
    fast = check_document(command("encode", *MINI, "hello", "--policy", "require_accelerated", "--json"))
    slow = check_document(command("encode", *MINI, "hello", "--policy", "reference", "--json"))
    assert (fast["backend"], slow["backend"]) == ("fast_cpu", "hf")
    assert fast["ids"] == slow["ids"]


@pytest.mark.unsanitized
@pytest.mark.parametrize("asked", [("--tokenizer", "gpu"), ("--device", "cuda")], ids=" ".join)
def test_asking_for_the_gpu_where_the_cpu_serves_is_answered_in_one_line(home: Path, asked: tuple[str, str]) -> None:
    outcome = run("encode", "hello", *MINI, *asked, home=home)
    assert (outcome.code, outcome.text) == (0, run("encode", "hello", *MINI, home=home).text)
    (line,) = outcome.stderr.splitlines()
    assert line.startswith("warning: toktier_mini: fast_cpu serves, not gpu: no usable GPU (R_NO_GPU_DETECTED)")
    assert "CUDA_VISIBLE_DEVICES" in line
    assert run("count", "README.md", *MINI, *asked, "--quiet", home=home).stderr == ""
    refused = run("encode", "hello", *MINI, *asked, "--no-tokenizer-fallback", home=home)
    assert refused.code == 8
    assert "fast_cpu then serves" in refused.stderr


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda p: p.stem)
def test_a_file_and_a_family_that_is_a_path(path: Path, command: Command) -> None:
    wanted = native_file(path).encode("Größe 12,345").ids
    for option in ("--file", "--family"):
        outcome = command("encode", option, str(path), "Größe 12,345", "--json")
        assert check_document(outcome)["ids"] == wanted


@pytest.mark.parametrize("data", [b"ab\xe4\xb8", b"\xff", b"\xc0\x80", b"\xed\xa0\x80"])
def test_bytes_that_are_no_utf8_are_an_error_with_the_position(command: Command, data: bytes) -> None:
    outcome = command("encode", *MINI, "-", "--json", stdin=b"good " + data)
    assert outcome.code == 2
    error = check_document(outcome)["error"]
    assert error["code"] == "INVALID_TEXT"
    assert error["details"]["position"] in range(5, 5 + len(data) + 1)


def test_decode_gives_the_exact_text_back(tok: toktier.Tokenizer, command: Command) -> None:
    for text in (TEXTS[0], TEXTS[5]):
        ids = tok.encode(text).ids
        spelled = [str(i) for i in ids]
        if spelled:
            assert command("decode", *MINI, *spelled).text == tok.decode(ids)
        assert command("decode", *MINI, "-", stdin=",".join(spelled).encode()).text == tok.decode(ids)
        assert command("decode", *MINI, "-", stdin=json.dumps(ids).encode()).text == tok.decode(ids)
        packed = struct.pack(f"<{len(ids)}I", *ids)
        assert command("decode", *MINI, "--format", "u32", stdin=packed).text == tok.decode(ids)
    document = check_document(command("decode", *MINI, "-", "--json", stdin=b"1 2 3"))
    assert (document["text"], document["count"]) == (tok.decode([1, 2, 3]), 3)


@pytest.mark.parametrize("given", [b"1 2 x", b"-1", b"1.5", b"99999999999", b"\xff", b"[1, [2]]"])
def test_decode_names_the_item_that_is_no_id(command: Command, given: bytes) -> None:
    outcome = command("decode", *MINI, "-", "--json", stdin=given)
    assert outcome.code == 2
    assert check_document(outcome)["error"]["code"] == "INVALID_TOKEN"
    cut = command("decode", *MINI, "--format", "u32", stdin=b"\0\0\0")
    assert cut.code == 2


def test_count_adds_up_and_goes_on_after_bad_files(tok: toktier.Tokenizer, command: Command, tmp_path: Path) -> None:
    texts = {f"{i}.txt": f"file number {i}\n" * i for i in range(20)}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    total = sum(tok.count(text) for text in texts.values())
    good = [str(tmp_path / name) for name in texts]
    assert command("count", *MINI, *good).text == f"{total}\n"
    table = command("count", *MINI, "--per-file", *good).text.splitlines()
    assert [int(row.split()[0]) for row in table[1:]] == [*(tok.count(t) for t in texts.values()), total]
    (tmp_path / "bad.bin").write_bytes(b"\xff\xfe")
    bad = [str(tmp_path / "bad.bin"), str(tmp_path / "absent"), str(tmp_path)]
    outcome = command("count", *MINI, *good, *bad, "--json", "--per-file")
    assert outcome.code == 6
    document = check_document(outcome)
    assert (document["tokens"], document["files_counted"], document["files_failed"]) == (total, 20, 3)
    assert {e["details"]["path"] for e in document["errors"]} == set(bad)
    plain = command("count", *MINI, *good, *bad)
    assert (plain.code, plain.text) == (6, f"{total}\n")
    assert plain.stderr.count("error: ") == 3
    assert command("count", *MINI, bad[1]).code == 3
    assert command("count", *MINI, bad[0], bad[0]).code == 2
    assert command("count", *MINI, stdin=b"hello").text == f"{tok.count('hello')}\n"


def test_on_a_terminal_one_line_says_how_many_who_and_how_fast(home: Path) -> None:
    code, shown = run_on_terminal("encode", *MINI, "hello world", home=home)
    note, ids = shown.splitlines()
    assert code == 0
    assert all(word.isdigit() for word in ids.split())
    assert note.startswith(f"{len(ids.split())} token")
    assert ", fast_cpu, " in note
    assert note.endswith(("µs", "ms", " s"))
    code, shown = run_on_terminal("encode", *MINI, home=home)
    assert code == 2
    assert "no text" in shown
    code, shown = run_on_terminal("encode", *MINI, "x", "--format", "u32", home=home)
    assert code == 2


@pytest.mark.parametrize("step", [pytest.param(3, marks=pytest.mark.ci), pytest.param(1, marks=pytest.mark.full)])
def test_the_cases_through_the_command(shared: Path, tmp_path: Path, step: int) -> None:
    """A sample of ../shared/cases through the command, forced to the native engine, beside the reference; in CI
    of every third artifact, where tests/conformance/test_cases_by_command.py takes two of each."""
    import tokenizers

    artifacts = Artifacts(shared, tmp_path)
    with open(shared / "cases" / "ids.jsonl", encoding="utf-8") as stream:
        cases = [case for case in map(json.loads, stream) if "text" in case and case["artifact"] in artifacts.names]
    checked, names = 0, artifacts.names[::step]
    for name in names:
        path = artifacts.path(name)
        reference = tokenizers.Tokenizer.from_file(str(path))
        mine = [case for case in cases if case["artifact"] == name]
        for case in mine[:: max(1, len(mine) // 4)]:
            data = case["text"].encode("utf-8", "surrogatepass")
            line = ["encode", "--file", str(path), "-", *FORCED_LINE, "--json"]
            outcome = run(*line, stdin=data, home=tmp_path)
            if outcome.code == 2:
                assert check_document(outcome)["error"]["code"] == "INVALID_TEXT"
                assert any("\ud800" <= c <= "\udfff" for c in case["text"])
                continue
            document = check_document(outcome)
            assert document["ids"] == reference.encode(case["text"], add_special_tokens=False).ids
            assert document["backend"] == "fast_cpu"
            checked += 1
    assert checked >= 3 * len(names)


@pytest.mark.parametrize("form", [[], ["--json"], ["--offsets"], ["--format", "u32"]], ids=str)
def test_malformed_text_of_a_file_is_told_with_its_name(command: Command, tmp_path: Path, form: list[str]) -> None:
    (tmp_path / "bad.txt").write_bytes(b"hello \xff")
    outcome = command("encode", *MINI, *form, "--input", str(tmp_path / "bad.txt"))
    assert outcome.code == 2
    told = outcome.document["error"]["message"] if form == ["--json"] else outcome.stderr
    assert f"{tmp_path}/bad.txt: malformed UTF-8 at byte 6" in told


def test_a_text_that_is_the_name_of_a_file_is_encoded_and_noted(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.txt").write_text("content")
    outcome = command("encode", *MINI, "a b.txt")
    assert (outcome.code, outcome.text) == (0, command("encode", *MINI, stdin=b"a b.txt").text)
    assert "which is not read: --input 'a b.txt' reads it" in outcome.stderr
    assert "which is not read" not in command("encode", *MINI, "a c.txt").stderr
    assert "which is not read" not in command("encode", *MINI, "x" * 5000).stderr
    assert command("encode", *MINI, "a b.txt", "--quiet").stderr == ""
