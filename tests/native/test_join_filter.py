"""The filter of adjacent characters (kernels/shared/join_filter.h): where it says that no merge joins two characters,
a piece cut there gives the same ids. Every live rule is tried against it, and texts of many scripts against the
reference.
"""

from __future__ import annotations

import itertools
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.support import tokenizer_maker as maker
from tests.support.bpe_oracle import TO_CHARACTER, Model, chars_join, table_inputs
from tests.support.material import SHARED, Artifacts, lines, small_tokenizers
from toktier import _native
from toktier.program.compile import compile_tokenizer
from toktier.program.file import read_program
from toktier.program.layout import Conf
from toktier.program.layout import Model as ModelKind
from toktier.program.pair_rows import program_rules

# Latin, Cyrillic, Arabic, Devanagari, Thai, Hangul, Kana, CJK, emoji, marks, rare scripts, all of 4 bytes, joiners.
SCRIPTS = [
    *[(0x20, 0x7E), (0xC0, 0x24F), (0x400, 0x52F), (0x600, 0x6FF), (0x900, 0x97F), (0xE01, 0xE5B), (0xAC00, 0xD7A3)],
    *[(0x3041, 0x30FF), (0x4E00, 0x9FA5), (0x1F300, 0x1FAFF), (0x300, 0x36F), (0x10300, 0x1049F), (0x10000, 0x10FFFF)],
    *[(0x2010, 0x206F), (0xFE00, 0xFE0F)],
]


def random_text(rng: random.Random, tokens: list[str]) -> str:
    parts: list[str] = []
    for _ in range(rng.randrange(2, 14)):
        first, last = rng.choice(SCRIPTS)
        if tokens and rng.random() < 0.4:
            parts.append(rng.choice(tokens))
        else:
            parts.append("".join(chr(rng.randint(first, last)) for _ in range(rng.randrange(1, 6))))
    return "".join(parts)


def one_piece(document: dict[str, Any]) -> Tokenizer:
    """The reference's model alone: every text is one piece, and merges make all of its tokens."""
    byte_level = '"ByteLevel"' in json.dumps(document["pre_tokenizer"])
    alone = document | {"normalizer": None, "post_processor": None, "added_tokens": [], "pre_tokenizer": None}
    if byte_level:
        alone["pre_tokenizer"] = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": False,
        }
    alone["model"] = document["model"] | {"ignore_merges": False}
    return Tokenizer.from_str(json.dumps(alone))


def parts_of(text: str, joins: bytes) -> list[str]:
    parts = [text[:1]]
    for character, join in zip(text[1:], joins, strict=True):
        if join:
            parts[-1] += character
        else:
            parts.append(character)
    return parts


def check_texts(reference: Tokenizer, program: _native.Program, texts: list[str]) -> tuple[int, int]:
    """The ids of the parts are those of the whole. How many positions beyond ASCII are cut, of how many."""
    cuts = positions = 0
    for text in texts:
        joins = program.joins(text)
        assert len(joins) == len(text) - 1
        parts = parts_of(text, joins)
        ids = [i for part in reference.encode_batch(parts, add_special_tokens=False) for i in part.ids]
        assert ids == reference.encode(text, add_special_tokens=False).ids, ascii(text)
        beyond = [join for a, b, join in zip(text, text[1:], joins, strict=False) if min(a, b) > "\x7f"]
        cuts, positions = cuts + beyond.count(0), positions + len(beyond)
    return cuts, positions


@cache
def small(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    return json.loads(data), compile_tokenizer(data)


def spelled(document: dict[str, Any]) -> list[str]:
    """Tokens as text, those that are text."""
    image = compile_tokenizer(json.dumps(document).encode())
    program = read_program(image)
    starts, raw = memoryview(program.section("RAWO")).cast("I"), bytes(program.section("RAWB"))
    texts = (raw[starts[i] : starts[i + 1]].decode("utf-8", "ignore") for i in range(len(starts) - 1))
    return [text for text in texts if text]


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda path: path.stem)
def test_law_parts_of_random_texts_of_small_tokenizers(path: Path) -> None:
    document, image = small(path)
    rng, tokens = random.Random(3), spelled(document)
    texts = [random_text(rng, tokens) for _ in range(400)]
    cuts, positions = check_texts(one_piece(document), _native.Program(image), texts)
    assert cuts > positions / 10


def characters_with(part: bytes, at_end: bool) -> list[str]:
    """Every character whose bytes end (begin) with `part`, which is less than a character."""
    bits = 0
    if at_end:
        for byte in part:
            bits = bits << 6 | byte & 0x3F
        candidates = range(bits, 0x110000, 64 ** len(part))
    else:
        length = 2 if part[0] < 0xE0 else 3 if part[0] < 0xF0 else 4
        for byte in bytes((part[0] & 0x7F >> length,)) + part[1:]:
            bits = bits << 6 | byte & 0x3F
        behind = 64 ** (length - len(part))
        candidates = range(bits * behind, min((bits + 1) * behind, 0x110000))
    found = []
    for cp in candidates:
        if cp < 0x80 or 0xD800 <= cp < 0xE000:
            continue
        data = chr(cp).encode()
        if len(data) > len(part) and (data.endswith(part) if at_end else data.startswith(part)):
            found.append(chr(cp))
    return found


cached_characters = cache(characters_with)


def outer_character(data: bytes, at_end: bool) -> list[str] | None:
    """The characters that may stand at this end of bytes that merge: one, many for a part of one, none for no UTF-8."""
    for length in range(1, min(4, len(data)) + 1):
        piece = data[-length:] if at_end else data[:length]
        try:
            text = piece.decode()
        except UnicodeDecodeError:
            continue
        return [text[-1] if at_end else text[0]]
    if len(data) < 4 and (all(0x80 <= byte < 0xC0 for byte in data) if at_end else data[0] >= 0xC2):
        return cached_characters(data, at_end)
    return None


@pytest.mark.parametrize("most", [12, pytest.param(40, marks=pytest.mark.full)])
@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda path: path.stem)
def test_every_junction_of_a_live_rule_joins(path: Path, most: int) -> None:
    """Each rule with each character that its sides may end and begin with; of many, a sample and both ends."""
    _, image = small(path)
    file, program, rng = read_program(image), _native.Program(image), random.Random(1)
    starts, raw = memoryview(file.section("RAWO")).cast("I"), bytes(file.section("RAWB"))
    if file.section("JCHR") == b"":
        return
    sections = {tag: bytes(file.section(tag)) for tag in ("JCHR", "JFRG")}
    conf = memoryview(file.section("CONF")).cast("I")
    checked = 0
    for left, right, _ in program_rules(file):
        a, b = raw[starts[left] : starts[left + 1]], raw[starts[right] : starts[right + 1]]
        lefts, rights = outer_character(a, True), outer_character(b, False)
        if conf[Conf.MODEL] == ModelKind.BYTE_LEVEL and (b[0] & 0xC0) == 0x80:
            continue  # inside a character
        for x in _sample(rng, lefts or [], most):
            for y in _sample(rng, rights or [], most):
                checked += 1
                assert program.joins(x + y) == b"\1", (a, b, x, y)
                assert chars_join(sections, x, y)
    assert checked > 100


def _sample(rng: random.Random, characters: list[str], most: int) -> list[str]:
    if len(characters) < most:
        return characters
    return [characters[0], characters[-1], *rng.sample(characters, most - 2)]


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda path: path.stem)
def test_the_filter_is_the_documented_one(path: Path) -> None:
    _, image = small(path)
    file, program, rng = read_program(image), _native.Program(image), random.Random(2)
    sections = {tag: bytes(file.section(tag)) for tag in ("JCHR", "JFRG", "BFBK")}
    if memoryview(file.section("CONF")).cast("I")[Conf.MODEL] != ModelKind.BYTE_LEVEL and sections["BFBK"] == b"":
        pytest.skip("characters without symbol join everything")
    for _ in range(200):
        text = random_text(rng, [])
        expected = bytes(chars_join(sections, x, y) for x, y in itertools.pairwise(text))
        assert program.joins(text) == expected


def test_fragments_of_characters_on_either_side() -> None:
    """Rules of all four kinds: whole and part of a character, left and right of the bar."""
    vocab = {TO_CHARACTER[b]: b for b in range(256)}

    def token(text: bytes) -> str:
        return "".join(TO_CHARACTER[b] for b in text)

    rules = [
        (b"\xe4", b"\xb8"),
        (b"a", b"b"),
        (b"\xad", b"x"),
        (b"y", b"\xe4\xb8"),
        (b"\x80", b"\xe4"),
        (b"\xb8", b"\xad"),
    ]
    for left, right in rules:
        vocab.setdefault(token(left + right), len(vocab))
    model = Model(vocab, [(token(left), token(right)) for left, right in rules], byte_level=True)
    sections, _, _ = _native.build_bpe(**table_inputs(model))
    for pair in ("ab", "中x", "y中", "y世", "\u0080中", "😀中", "x中"[::-1]):
        assert chars_join(sections, *pair), pair
    for pair in ("ba", "中y", "x中", "世x", "a中", "e😀", "a😀"):
        assert not chars_join(sections, *pair), pair


def test_no_filter_where_a_byte_has_no_symbol() -> None:
    model = Model({"a": 0, "b": 1, "ab": 2}, [("a", "b")], byte_level=True)
    sections, _, _ = _native.build_bpe(**table_inputs(model))
    assert sections["JCHR"] == sections["JFRG"] == b""


def test_a_character_without_symbol_joins_everything_unless_every_byte_falls_back() -> None:
    """Unknown characters fuse, and dropped ones let their neighbours meet; byte-fallback symbols stand alone."""
    document = maker.small("llama_like")
    program = _native.Program(compile_tokenizer(maker.encoded(document)))
    assert program.joins("\U00012345\U00012346") == b"\0"
    without = document | {"model": document["model"] | {"byte_fallback": False}}
    program = _native.Program(compile_tokenizer(maker.encoded(without)))
    assert program.joins("\U00012345\U00012346a") == b"\1\1"


IN_CI, OTHERS = ("qwen3", "gptoss", "gemma3", "llama2"), ("llama3", "deepseek_v3", "claude", "gpt4o")


@pytest.mark.parametrize(
    "name",
    [
        *(
            pytest.param(name, marks=(pytest.mark.ci, *(() if name == "qwen3" else (pytest.mark.ordinary,))))
            for name in IN_CI
        ),
        *(pytest.param(name, marks=pytest.mark.full) for name in OTHERS),
    ],
)
def test_law_parts_of_texts_of_real_tokenizers(name: str, artifacts: Artifacts) -> None:
    data = artifacts.path(name).read_bytes()
    document = json.loads(data)
    program, reference = _native.Program(compile_tokenizer(data)), one_piece(document)
    rng, tokens = random.Random(5), spelled(document)
    check_texts(reference, program, [random_text(rng, tokens) for _ in range(3000)])
    shares = {}
    for corpus in ("zh", "ja", "ru"):
        texts = [text[:1500] for text in itertools.islice(lines(SHARED, corpus), 60)]
        cuts, positions = check_texts(reference, program, texts)
        shares[corpus] = cuts / positions
    assert shares["zh"] > 0.4, shares
