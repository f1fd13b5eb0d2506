"""The wide form of the look-up tables, for vocabularies beyond 2^20 ids: written by the compiler where ids do not fit
the compact form, read by the engine in place of it, with the same ids; and keys and lines of the compact form at their
limits.
"""

from __future__ import annotations

import random
import struct
from array import array
from pathlib import Path

import pytest

from tests.native.test_engine_reader import TEXT, Sections, read_sections, write_sections
from tests.support.bpe_oracle import NONE, Model, find_in_lines, hash_pair, hash_piece, piece_key, table_inputs
from tests.support.material import ROOT, small_tokenizers
from toktier import _native
from toktier.program.compile import compile_tokenizer
from toktier.program.layout import TokenFlag
from toktier.program.pair_rows import live_rules


def open_addressing(keys: list[tuple[int, list[int]]]) -> bytearray:
    """Rows by their hash, as docs/program-format.md describes the wide form."""
    capacity = 2
    while capacity < 2 * len(keys):
        capacity *= 2
    width = len(keys[0][1])
    slots = [NONE] * (capacity * width)
    for h, row in keys:
        i = h % capacity
        while slots[i * width] != NONE:
            i = (i + 1) % capacity
        slots[i * width : (i + 1) * width] = row
    return bytearray(struct.pack(f"<{len(slots)}I", *slots))


def widened(sections: Sections) -> Sections:
    """The same program with the wide form of every table, products by rank."""

    def strings(offsets: str, content: str, wanted: int) -> bytearray:
        starts, data = array("I", bytes(sections[offsets])), bytes(sections[content])
        ids = [i for i, flags in enumerate(sections["TFLG"]) if flags & wanted]
        return open_addressing([(hash_piece(data[starts[i] : starts[i + 1]]), [i]) for i in ids])

    rules = live_rules(lambda tag: bytes(sections.get(tag, b"")))
    out = dict(sections)
    for tag in ("PLIN", "PKEY", "VLIN", "MDIS", "MENT"):
        out.pop(tag, None)
    out["PHSH"] = strings("RAWO", "RAWB", TokenFlag.WHOLE_PIECE)
    out["VHSH"] = strings("STRO", "STRB", TokenFlag.EXISTS)
    out["PAIR"] = open_addressing([(hash_pair(a, b), [a, b, rank]) for rank, (a, b, _) in enumerate(rules)])
    out["MPRD"] = bytearray(struct.pack(f"<{len(rules)}I", *(product for _, _, product in rules)))
    return out


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda path: path.stem)
def test_the_engine_reads_both_forms_alike(path: Path) -> None:
    image = compile_tokenizer(path.read_bytes())
    compact, wide = _native.Program(image), _native.Program(write_sections(widened(read_sections(image))))
    texts = [TEXT, "\0", "a\0"]
    texts += [(ROOT / "tests/data/text" / f"{name}.txt").read_text("utf-8")[:20_000] for name in ("code", "languages")]
    rng = random.Random(1)
    for _ in range(50):
        texts.append("".join(chr(rng.choice((rng.randrange(128), rng.randrange(0x3000, 0xA000)))) for _ in range(40)))
    for text in texts:
        assert _native.EncoderBase(wide).encode(text).ids == _native.EncoderBase(compact).encode(text).ids
    for i in range(compact.info()["n_ids"]):
        token = compact.id_to_token(i)
        assert wide.id_to_token(i) == token
        assert token is None or wide.token_to_id(token) == compact.token_to_id(token)
    assert compact.token_to_id("no token of these") is wide.token_to_id("no token of these") is None


def test_ids_beyond_the_compact_form_are_compiled_wide() -> None:
    far = (1 << 20) + 3
    model = Model({"a": 0, "b": 1, "ab": far, "abb": 2}, [("a", "b"), ("ab", "b")])
    sections, live, _ = _native.build_bpe(**table_inputs(model))
    assert sections["PLIN"] == sections["PKEY"] == sections["VLIN"] == sections["MDIS"] == sections["MENT"] == b""
    assert live_rules(lambda tag: sections[tag]) == [(0, 1, far), (far, 1, 2)]
    pairs = array("I", sections["PAIR"])
    assert {tuple(pairs[i : i + 3]) for i in range(0, len(pairs), 3)} == {(0, 1, 0), (far, 1, 1), (NONE, NONE, NONE)}
    assert {i for i in array("I", sections["PHSH"]) if i != NONE} == {0, 1, 2, far}
    assert {i for i in array("I", sections["VHSH"]) if i != NONE} == {0, 1, 2, far}
    assert len(live) == 24


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 14, 15, 16, 17, 254, 255, 256, 300])
def test_keys_of_every_length(length: int) -> None:
    """Tokens that differ in their last byte, in length by zeros, and beyond what a key holds."""
    texts = [b"x" * length + end for end in (b"", b"\0", b"\0\0", b"a", b"b")]
    texts = [text for text in dict.fromkeys(texts) if text]
    strings = [text.decode() for text in texts]
    model = Model({text: i for i, text in enumerate(strings)}, [], ignore_merges=True)
    sections, _, _ = _native.build_bpe(**table_inputs(model))
    keys = array("Q", sections["PKEY"])
    assert [tuple(keys[2 * i : 2 * i + 2]) for i in range(len(texts))] == [piece_key(text) for text in texts]
    lines = array("I", sections["PLIN"])
    for i, text in enumerate(texts):
        assert find_in_lines(lines, text, texts.__getitem__) == i
    assert find_in_lines(lines, b"x" * length + b"c", texts.__getitem__) is None


@pytest.mark.parametrize("entries", [1, 2, 10, 11, 160, 3000])
def test_small_tables_end(entries: int) -> None:
    """Lines that are full go on in the next one, the last one in the first."""
    model = Model({f"t{i}": i for i in range(entries)}, [], ignore_merges=True)
    sections, _, _ = _native.build_bpe(**table_inputs(model))
    slots = array("I", sections["VLIN"])
    assert sum(slot != NONE for slot in slots) == entries
    assert len(slots) <= 16 * (entries // 10 + 1)
