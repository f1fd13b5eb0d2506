"""The kernels of facts and boundaries under the emulator, against the CPU engine's two passes: classes of characters,
runs over several tiles, edges of segments at edges of words and tiles, added tokens, and bytes that are no text.
"""

from __future__ import annotations

import itertools
import json
import random
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.emulated_pipeline import TILE, WORD, Left
from tests.support.engine_pair import BYTE_LEVEL, byte_alphabet
from tests.support.expected_pieces import Tokenizer
from tests.support.material import ROOT, SHARED, SMALL_DIR, Artifacts, corpora, lines
from tests.support.tokenizer_maker import added, changed, minimal
from toktier import _native

SMALL = ("cl100k_like", "deepseek_like", "o200k_like")
CODE_POINTS = {"gemini", "gemma3", "llama2"}  # of the real ones: no byte-level model, which a device needs
TWICE = {"gptoss", "llama3_1", "llama3_2"}  # the patterns of gpt4o and llama3
NAMES = sorted({*Artifacts(SHARED, SHARED).names} - CODE_POINTS - TWICE) if SHARED else []
SEEDS = (1, 2, 3)


@pytest.fixture(scope="module", params=SMALL)
def small(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer((SMALL_DIR / f"{request.param}.json").read_bytes())


@pytest.fixture(scope="module", params=NAMES)
def real(request: pytest.FixtureRequest, artifacts: Artifacts) -> Tokenizer:
    return Tokenizer(artifacts.path(request.param).read_bytes())


def with_tokens(*tokens: dict[str, Any], **changes: Any) -> Tokenizer:
    """Every byte a token, words apart as in GPT-2, and these added tokens."""
    vocab = {character: byte for byte, character in enumerate(byte_alphabet())}
    numbered = [{**token, "id": 256 + at} for at, token in enumerate(tokens)]
    document = changed(
        minimal(),
        pre_tokenizer=BYTE_LEVEL,
        model__vocab=vocab,
        model__merges=[],
        added_tokens=numbered,
        **changes,
    )
    return Tokenizer(json.dumps(document, ensure_ascii=False).encode())


def text_file(name: str) -> bytes:
    return (ROOT / "tests" / "data" / "text" / f"{name}.txt").read_bytes()


def class_strings(tokenizer: Tokenizer, length: int) -> list[bytes]:
    characters = tokenizer.characters
    return ["".join(string).encode() for string in itertools.product(characters, repeat=length)]


def mixed(tokenizer: Tokenizer, rng: random.Random, size: int) -> bytes:
    """Runs of characters of few classes, and added tokens between."""
    parts: list[str] = []
    tokens = [token.decode() for token in tokenizer.ids]
    while sum(map(len, parts)) < size:
        few = rng.sample(tokenizer.characters, min(4, len(tokenizer.characters)))
        parts.append("".join(rng.choice(few) * rng.choice((1, 1, 2, 3, 40)) for _ in range(rng.randrange(12))))
        if tokens and rng.random() < 0.3:
            parts.append(rng.choice(tokens))
    return "".join(parts).encode()


def cut(rng: random.Random, text: bytes, longest: int) -> list[bytes]:
    """Into documents, at characters; some are empty."""
    characters = text.decode()
    documents: list[bytes] = []
    at = 0
    while at < len(characters):
        size = rng.choice((0, 1, 2, 3, rng.randrange(longest)))
        documents.append(characters[at : at + size].encode())
        at += size
    return documents


def check_runs(tokenizer: Tokenizer, rng: random.Random) -> None:
    """A character over two tiles and a half, alone and with another one before it, in it or behind it: what decides a
    place may stand tiles away, on either side."""
    for character in tokenizer.characters:
        other = rng.choice(tokenizer.characters)
        run = character * (5 * TILE // 2 // len(character.encode()))
        at = rng.randrange(len(run))
        documents = [run, other + run, run[:at] + other + run[at:], run + other]
        tokenizer.check([rng.choice(documents).encode()], seed=rng.randrange(1 << 30))


def check_edges(tokenizer: Tokenizer, rng: random.Random, sizes: list[int]) -> None:
    """Documents end at these places of the chunk, where a word or a tile begins or next to it."""
    text = mixed(tokenizer, rng, max(sizes) + 100)
    for size in sizes:
        first = text[:size].decode(errors="ignore").encode()
        behind = text[len(first) :][:70].decode(errors="ignore").encode()
        tokenizer.check([first, behind, b"", behind], seed=rng.randrange(1 << 30))


def test_class_strings(small: Tokenizer) -> None:
    for length in (1, 2):
        small.check(class_strings(small, length))


@pytest.mark.parametrize("seed", SEEDS)
def test_texts_and_documents_of_every_length(small: Tokenizer, seed: int) -> None:
    rng = random.Random(seed)
    text = b"".join(text_file(name)[:3000] for name in ("english", "languages", "code", "chat"))
    small.check(
        cut(rng, text.decode(errors="ignore").encode(), 300), seed=seed, resident_blocks=3, shuffled_blocks=True
    )
    small.check([mixed(small, rng, 3 * TILE)], seed=seed)


def test_edges_of_words_and_tiles(small: Tokenizer) -> None:
    check_edges(small, random.Random(5), [*range(WORD - 3, WORD + 4), *range(TILE - 3, TILE + 4)])


def test_runs_over_several_tiles(small: Tokenizer) -> None:
    check_runs(small, random.Random(7))


def test_nothing_and_next_to_nothing(small: Tokenizer) -> None:
    small.check([b""])
    small.check([b"", b"", b"a", b""])
    small.check(["é".encode()] * 40)


TOKENS = with_tokens(
    added("<t>", special=True),
    added("<tt>"),
    added("é", normalized=True),
    added("x"),
    added("<|" + "long" * 15 + "|>", special=True),
)


def test_added_tokens_at_edges() -> None:
    """A token before, across and behind each edge of words and tiles, alone and side by side."""
    for token in TOKENS.ids:
        for edge in (WORD, 2 * WORD, TILE):
            for begin in {edge - len(token), edge - len(token) // 2, edge - 1, edge, edge + 1}:
                if begin >= 0:
                    TOKENS.check([b"a " * (begin // 2) + b"b" * (begin % 2) + token * 2 + b" c", token])


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.lists(st.sampled_from(["<t>", "<tt>", "é", "x", "<t", ">", " ", "a", "b1", "\u00e8", "\n"]), max_size=40)
    ),
    st.booleans(),
)
def test_law_added_tokens_that_do_not_overlap(documents: list[list[str]], plain: bool) -> None:
    TOKENS.check(["".join(parts).encode() for parts in documents], plain=plain)


def test_no_token_goes_across_documents() -> None:
    TOKENS.check([b"a<t", b">b", b"<t", b"t>", b"\xc3\xa9", b"<t>"])


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (("<ab", "b>"), "a <ab> c"),  # the one begins in the other and goes on behind it
        (("<ab>", "b"), "<ab>"),  # inside
        (("<a", "<ab>", "b"), "x<ab>"),
        (("aa", "a"), "baaa"),  # the second `aa` begins in the first
        (("ab", "*abc"), "abc"),  # of both passes at one place; * is for the second pass
        (("*abc", "c"), "abc"),
        (("abc", "*b"), "abc"),
    ],
)
def test_overlaps_are_left_to_the_cpu(tokens: tuple[str, ...], text: str) -> None:
    """The documents beside it are not."""
    made = with_tokens(*(added(t.removeprefix("*"), normalized=t.startswith("*")) for t in tokens))
    for plain in (False, True):
        found = made.run([b"d", text.encode(), b"d d"], plain=plain)
        assert [document.flags for document in found] == [0, Left.OVERLAP, 0]
        assert [document.pieces for document in found[::2]] == [[0], [0, 1]]


@pytest.mark.parametrize("flag", ["single_word", "lstrip", "rstrip"])
def test_tokens_that_look_around_are_left_to_the_cpu(flag: str) -> None:
    made = with_tokens(added("<m>", special=True, **{flag: True}), added("<n>"))
    documents = [b"a<m>", b"<n>", b"<m", b"> <m>"]
    assert [d.flags for d in made.run(documents)] == [Left.FLAGS, 0, 0, Left.FLAGS]
    assert [d.flags for d in made.run(documents, plain=True)] == [0, 0, 0, 0]
    made.check(documents, plain=True)


def test_text_that_a_normalizer_may_change_is_left_to_the_cpu() -> None:
    """Every text that NFC changes, and none of what Europe and East Asia write in composed form."""
    made = with_tokens(normalizer={"type": "NFC"})
    changed_by_it = ["e\u0301", "\u212b", "\u1112\u1161", "a\u0327\u0301", "\u0958", "\U0001d15e"]
    unchanged = ["plain text", "é Å ñ", "中文 かな 한국", "Жук", "😀"]
    assert all(unicodedata.normalize("NFC", text) != text for text in changed_by_it)
    found = made.run([text.encode() for text in (*changed_by_it, *unchanged)])
    assert [document.flags for document in found] == [Left.NORMALIZED] * len(changed_by_it) + [0] * len(unchanged)
    made.check([text.encode() for text in unchanged])


MALFORMED = (
    b"\x80", b"\xbf\xbf", b"\xc0\xaf", b"\xc1\xbf", b"\xc3", b"\xc3(", b"\xe0\x80\xaf", b"\xe0\x9f\xbf", b"\xe2\x82",
    b"\xe2\x28\xa1", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x80\x80\xaf", b"\xf0\x8f\xbf\xbf", b"\xf0\x9f\x98",
    b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xff", b"\xfe\xff", b"\xc3\xa9\xa9", b"a\x80",
    b"\xe4\xb8\xad\xad", b"\xf0\x9f\x98\x80\x80",
)  # fmt: skip


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def check_bytes(tokenizer: Tokenizer, documents: list[bytes], **options: Any) -> None:
    """Documents that are no text are flagged, and nothing changes for those beside them."""
    for document, found in zip(documents, tokenizer.run(documents, **options), strict=True):
        assert bool(found.flags & Left.MALFORMED) != is_text(document), document
        if not found.flags:
            assert found.pieces == tokenizer.pieces(document).begins, document


def test_malformed_text_is_flagged_and_its_neighbours_are_not() -> None:
    """At every place of a word, at both ends of a document; no character takes bytes of the next document."""
    made = with_tokens(added("<t>"))
    for fault in MALFORMED:
        around = [b"\xc3\xa9", fault, b"ok " * 3, *(b"a" * n + fault + b"z" for n in range(26, 34)), b"<t>"]
        check_bytes(made, around)
    for character in ("é", "中", "😀"):
        data = character.encode()
        for at in range(1, len(data)):
            check_bytes(made, [b"a" * 30 + data[:at], data[at:], data, b"b"])


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.binary(max_size=80) | st.text(max_size=30).map(str.encode) | st.sampled_from(MALFORMED), max_size=12),
    st.integers(1, 1 << 40),
)
def test_law_any_bytes_are_safe(documents: list[bytes], seed: int) -> None:
    check_bytes(TOKENS_APART, documents, seed=seed)


TOKENS_APART = with_tokens(added("<t>"), added("\u00ff\u00fe"))


@pytest.mark.ci
@pytest.mark.parametrize("variant", ["asan", "tsan"])
def test_sanitizers_find_nothing(variant: str) -> None:
    """Documents of every kind, malformed ones too, in two tiles and a word: blocks run side by side and wait for each
    other."""
    rng = random.Random(17)
    documents = [
        mixed(TOKENS, rng, 300),
        b"<t>",
        *MALFORMED,
        bytes(rng.randrange(256) for _ in range(2000)),
        b"<tt>x" * 900,
    ]
    documents.append(b"a" * (2 * TILE + 5 - sum(map(len, documents))))
    check_bytes(TOKENS, documents, variant=variant, resident_blocks=3)


@pytest.mark.ci
def test_class_strings_of_real_patterns(real: Tokenizer) -> None:
    facts = _native.device_facts(real.program)
    assert facts["bytes"] == len(real.image)
    assert max(facts["left_elements"], facts["right_elements"]) <= 255
    real.check(class_strings(real, 1) + class_strings(real, 2))
    rng = random.Random(11)
    strings = ["".join(rng.choices(real.characters, k=rng.choice((3, 3, 4)))).encode() for _ in range(3000)]
    real.check(strings)


@pytest.mark.ci
def test_edges_and_runs_of_real_patterns(real: Tokenizer) -> None:
    rng = random.Random(13)
    check_edges(real, rng, [WORD - 1, WORD, WORD + 1, TILE - 1, TILE, TILE + 1])
    for character in rng.sample(real.characters, 4):
        other = rng.choice(real.characters)
        run = character * (3 * TILE // 2 // len(character.encode()))
        real.check([(run + other).encode(), (other + run).encode()])


@pytest.mark.ci
@pytest.mark.parametrize("seed", SEEDS)
def test_documents_of_real_patterns(real: Tokenizer, shared: Path, seed: int) -> None:
    """A document of each corpus, an edge of it anywhere in a word; text that a normalizer may change is flagged."""
    documents = [b"x" * seed]
    for corpus in corpora(shared):
        document = next(itertools.islice(lines(shared, corpus), seed, None))
        documents.append(document.encode()[:4000].decode(errors="ignore").encode())
    found = real.run(documents, seed=seed, resident_blocks=3, shuffled_blocks=True)
    assert sum(not document.flags for document in found) >= len(documents) // 2
    for document, one in zip(documents, found, strict=True):
        assert one.flags in (0, Left.NORMALIZED)
        if not one.flags:
            assert (one.pieces, one.dropped, one.covered, one.tokens) == real.pieces(document)
