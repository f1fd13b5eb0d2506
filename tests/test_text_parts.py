"""A text in blocks gives the ids of the whole, whatever the blocks; memory stays bounded, and who holds says so."""

from __future__ import annotations

import random
import subprocess
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

import toktier
from tests.support.material import ROOT, Artifacts, changed_tokenizer, small_tokenizers, unpack
from tests.support.native_tokenizers import FORCED_LINE, native_family, native_file
from toktier import text_parts
from toktier.errors import InvalidText, ProgramUnsupported, UsageError

SMALL = small_tokenizers()


def blocks_of(data: bytes, size: int) -> Iterator[bytes]:
    return (data[i : i + size] for i in range(0, len(data), size))


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_parts, "PART_BYTES", 16)
    monkeypatch.setattr(text_parts, "TAIL_BYTES", 12)


def sample(seed: int, specials: list[str]) -> str:
    chance = random.Random(seed)
    words = [
        "hello ",
        "Größe",
        "日本語",
        "👩‍👩‍👧",
        " ",
        "\n\n",
        "12,345",
        "x" * 40,
        "\ufeff",
        "e\u0301",
        "\u0301",
        "'s ",
        *specials,
    ]
    return "".join(chance.choice(words) for _ in range(200))


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("path", SMALL, ids=lambda p: p.stem)
def test_parts_give_the_ids_of_the_whole(path: Path) -> None:
    tok = native_file(path)
    parted = 0
    for seed in range(6):
        text = sample(seed, list(tok.special_tokens)[:3])
        data = text.encode()
        for special in (False, True):
            whole = tok.encode(text, special).ids
            for size in (1, 3, 17, 1000):
                parts = list(tok.encode_stream(blocks_of(data, size), special))
                assert [i for part in parts for i in part.ids] == whole
                assert {part.backend for part in parts} == {"fast_cpu"}
                parted += len(parts) > 4

    assert parted or "llama" in path.stem or "gemma" in path.stem


@pytest.mark.usefixtures("short_parts")
def test_most_small_tokenizers_are_really_cut() -> None:
    text = sample(1, []).encode()
    cut = [p.stem for p in SMALL if len(list(native_file(p).encode_stream([text[:99], text[99:]]))) > 1]
    assert len(cut) >= len(SMALL) // 2, cut


@pytest.mark.usefixtures("short_parts")
def test_the_reference_and_stored_lengths_hold_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_parts, "HELD_BYTES", 64)
    data = b"hello world " * 40
    cut = {"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0}
    truncating = changed_tokenizer(SMALL[0], tmp_path / "t.json", truncation=cut)
    for tok, why in (
        (toktier.from_file(SMALL[0], policy="reference"), "the reference serves"),
        (native_file(truncating), "truncation"),
    ):
        said: list[str] = []
        (only,) = tok.encode_stream(blocks_of(data, 10), True, on_hold=said.append)
        assert only.ids == tok.encode(data, True).ids
        assert len(said) == 1
        assert why in said[0]


@pytest.mark.usefixtures("short_parts")
def test_a_text_without_cuts_is_held_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_parts, "HELD_BYTES", 64)
    tok = native_family("toktier_mini")
    data = b"e" * 2000  # one piece, in which merges may join any two
    assert tok.program is not None
    assert tok.program.cuts(data)[0] == []
    said: list[str] = []
    assert [i for e in tok.encode_stream(blocks_of(data, 7), on_hold=said.append) for i in e.ids] == tok.encode(
        data
    ).ids
    assert said == ["no place so far where this text may be cut"]
    monkeypatch.setattr(text_parts, "MAX_TEXT_BYTES", 1000)
    with pytest.raises(UsageError, match=r"more than 1,000 bytes from byte 0 on"):
        list(tok.encode_stream(blocks_of(data, 7)))


@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize("bad", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe4\xb8", b"\xf0\x9f\x91("])
def test_malformed_bytes_are_named_by_their_place_in_the_whole(size: int, bad: bytes) -> None:
    tok = native_family("toktier_mini")
    data = "Größe ".encode() * 9 + bad
    with pytest.raises(InvalidText) as caught:
        list(tok.encode_stream(blocks_of(data, size)))
    with pytest.raises(InvalidText) as whole:
        tok.encode(data)
    assert (caught.value.message, caught.value.details) == (whole.value.message, whole.value.details)


def test_a_byte_order_mark_is_text_and_no_blocks_are_the_empty_text() -> None:
    tok = native_family("toktier_mini")
    (mark,) = tok.encode_stream([b"\xef", b"\xbb\xbf"])
    assert mark.ids == tok.encode("\ufeff").ids != []
    (empty,) = tok.encode_stream([])
    assert empty.ids == []


@pytest.mark.parametrize(
    ("form", "most"), [("u32", 80), ("ids", 140)], ids=lambda value: value if isinstance(value, str) else ""
)
@pytest.mark.parametrize("mib", [40, pytest.param(100, marks=pytest.mark.ci)])
def test_memory_is_bounded_for_a_long_stream(mib: int, form: str, most: int, tmp_path: Path) -> None:
    """A process of its own: what peaks is the command with its imports, stdin to stdout: 47 MiB, with `ids` 102,
    however long the stream. A third of its bytes that were kept would be found at 100 MiB, two fifths with `ids`.
    """
    script = (
        "import resource, subprocess, sys\n"
        "line = [sys.executable, '-m', 'toktier_cli.main', 'encode', '-f', 'toktier_mini', '--format', *sys.argv[2:]]\n"
        "child = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)\n"
        "block = ('Größe 12,345 hello world\\n' * 40330)[:1 << 20].encode()\n"
        "for _ in range(int(sys.argv[1])): child.stdin.write(block)\n"
        "child.stdin.close()\n"
        "assert child.wait() == 0\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(mib), form, *FORCED_LINE],
        capture_output=True, text=True, cwd=ROOT, check=True,
        env={"TOKTIER_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert int(done.stdout) < most * 1024, f"{int(done.stdout) // 1024} MiB"


@pytest.mark.ci
def test_real_tokenizers_on_real_texts(shared: Path, tmp_path: Path) -> None:
    """Every published tokenizer that compiles, over a text of several parts in nine kinds of content."""
    artifacts = Artifacts(shared, tmp_path)
    lines = b"\n".join(unpack(path)[:400_000] for path in sorted((shared / "corpus").glob("*.zst")))
    data = lines.decode("utf-8", "ignore").encode()
    checked = 0
    for name in artifacts.names:
        try:
            tok = native_file(artifacts.path(name))
        except ProgramUnsupported:
            continue
        for special in (False, True):
            parts = list(tok.encode_stream(blocks_of(data, 70_001), special))
            assert array("I", (i for part in parts for i in part)) == array("I", tok.encode(data, special)), name
            checked += len(parts) > 2
    assert checked >= 10
