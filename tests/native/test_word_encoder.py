"""Ids without offsets, made a window of words at a time: at every dispatch level, whatever the word cache holds.

The oracle is the reference, and the path with offsets, which shares no loop with this one. What a cache keeps may not
show: it is tried with two lines, where everything pushes out everything else.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.support.material import SHARED, Artifacts, corpora, lines, small_tokenizers
from toktier import _native
from toktier.program.compile import compile_tokenizer

LEVELS: list[str] = _native.build_facts()["dispatch_levels"]
CACHES = (None, 2)
ROOT = Path(__file__).resolve().parents[2]
SMALL = [ROOT / "tables/artifacts/toktier_mini/tokenizer.json", *small_tokenizers()]
LETTERS = [*"abcdefghijklmnopqrstuvwxyz", *"  \n\t'.-019ABZ", *"éßж中日のก\u0301😀\u2028", "👩‍👧"]
LENGTHS = (1, 2, 3, 5, 7, 8, 14, 15, 16, 17, 30, 31, 32, 33, 47, 48, 49, 63, 64)


@functools.cache
def image_of(path: Path) -> bytes:
    return compile_tokenizer(path.read_bytes())


def encoder_of(path: Path, level: str, cache_lines: int | None) -> _native.EncoderBase:
    return _native.EncoderBase(_native.Program(image_of(path), level, cache_lines))


def check(path: Path, texts: list[str], *, twice: bool = True) -> None:
    """Every level and cache gives the reference's ids; `twice`: once more, now that all words are known."""
    reference = Tokenizer.from_str(path.read_text())
    reference.no_truncation()
    reference.no_padding()
    expected = [reference.encode(text, add_special_tokens=False).ids for text in texts]
    for level in LEVELS:
        for cache_lines in CACHES:
            encoder = encoder_of(path, level, cache_lines)
            for _ in range(1 + twice):
                for text, ids in zip(texts, expected, strict=True):
                    encoding = encoder.encode(text)
                    assert encoding.backend == "fast_cpu"
                    assert list(encoding.ids) == ids, (path.name, level, cache_lines, ascii(text[:200]))


def random_words(rng: random.Random, count: int) -> Iterator[str]:
    """Words that no vocabulary has, of every length around what a key and a vector hold."""
    for _ in range(count):
        yield "".join(rng.choices(LETTERS, k=rng.choice(LENGTHS)))


def random_texts(seed: int) -> list[str]:
    rng = random.Random(f"words {seed}")
    texts = ["".join(random_words(rng, rng.randrange(1, 60))) for _ in range(30)]
    texts += [" ".join(random_words(rng, 40)) for _ in range(20)]
    # The same few words at many places of a window, beside others that are new.
    few = list(random_words(rng, 6))
    for _ in range(5):
        texts.append(" ".join(rng.choice([*few, *random_words(rng, 2)]) for _ in range(200)))
    return texts


def border_texts() -> list[str]:
    """Spans and bytes around what a window and a run of windows hold, with a word across the border."""
    texts = []
    for size in (4095, 4096, 4097, 8191, 8192, 8193):
        for shift in (0, 1, 5, 14):
            front = ("1 " * size)[: size - shift]
            texts += [front + "straight中é😀forward" + front[:3000], (front + "é" * 40 + " end")]
    many = {"1": 9000, ".a": 5000, "é ": 4000, "中": 3000, "😀": 2500, "\n": 4100, " the": 2100}
    texts += [unit * count for unit, count in many.items()]
    return texts


def hostile_texts() -> list[str]:
    rng = random.Random("hostile words")
    size = 6000
    return [
        "a" * size,
        " " * size,
        "-" * size,
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=size)),
        "".join(rng.choices("😀😁🎉🚀🔥👍🏽", k=size // 4)),
        "".join(c + "\u0301\u0323\u0308" * 3 for c in rng.choices("abcdefgh", k=size // 20)),
        "".join(chr(rng.choice((rng.randrange(0x20, 0x7F), rng.randrange(0xA0, 0xD7FF)))) for _ in range(size // 2)),
        "".join(chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(size // 3)),
        "".join(chr(rng.randrange(0x10000, 0x2FFFF)) for _ in range(size // 4)),
    ]


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.parent.name if path.stem == "tokenizer" else path.stem)
def test_small_tokenizers_at_every_level_and_cache(path: Path) -> None:
    check(path, [*random_texts(0), *hostile_texts(), "", "a", "é", "中"])
    check(path, border_texts(), twice=False)


def test_a_word_is_one_key_up_to_fifteen_bytes() -> None:
    """Words that differ in one byte, at each length, in one window; and words that are the beginning of another."""
    path = SMALL[0]
    word = "abcdefghijklmnopqrstuvwxyz" * 2
    texts = []
    for size in range(1, 40):
        variants = [word[:at] + "z" + word[at + 1 : size] for at in range(size)]
        texts.append("\n".join([word[:size], *variants, *(word[:n] for n in range(1, size)), word[:size]]))
    check(path, texts)


def test_parts_are_not_pieces() -> None:
    """Under `ignore_merges` a piece may be an entry that no merges make; the same text as a part of a piece may not.
    Both stand in one window, in either order."""
    document = json.loads(SMALL[0].read_text())
    document["added_tokens"] = []
    document["model"]["ignore_merges"] = True
    vocab = document["model"]["vocab"]
    bytes_of = {"中": "ä¸Ń", "ж": "Ð¶"}
    for word in ("中ж", "ж中中", "中中ж"):
        vocab["".join(bytes_of[c] for c in word)] = max(vocab.values()) + 1
    text = json.dumps(document, ensure_ascii=False)
    image = compile_tokenizer(text.encode())
    reference = Tokenizer.from_str(text)
    texts = ["中ж", "x中жy 中ж", "中ж x中ж", "ж中中ж中中 ж中中", "中中жж中中 中中ж", "中ж中中ж中ж"]
    texts.append(" ".join(texts) * 30)
    for level in LEVELS:
        for cache_lines in CACHES:
            encoder = _native.EncoderBase(_native.Program(image, level, cache_lines))
            for _ in range(2):
                for t in texts:
                    assert list(encoder.encode(t).ids) == reference.encode(t, add_special_tokens=False).ids, (level, t)


def test_two_lines_is_the_least() -> None:
    image = image_of(SMALL[0])
    for cache_lines in (0, 1, 3, 1 << 20):
        with pytest.raises(ValueError, match="power of two"):
            _native.Program(image, None, cache_lines)


# Of the published tokenizers; a sample of each corpus here, all of it in the full tier.
NAMES = ("qwen3", "llama3", "gptoss", "deepseek_v3", "claude", "gemma3", "llama2")


def sample(corpus: str, size: int) -> list[str]:
    assert SHARED is not None
    texts: list[str] = []
    for text in lines(SHARED, corpus):
        texts.append(text)
        size -= len(text)
        if size < 0:
            break
    return texts


def check_published(name: str, size: int, directory: Path, levels: list[str]) -> None:
    assert SHARED is not None
    path = Artifacts(SHARED, directory).path(name)
    image = compile_tokenizer(path.read_bytes())
    reference = Tokenizer.from_str(path.read_text())
    texts = [*random_texts(1), *hostile_texts(), *(t for corpus in corpora(SHARED) for t in sample(corpus, size))]
    expected = [reference.encode(text, add_special_tokens=False).ids for text in texts]
    for level in levels:
        for cache_lines in CACHES:
            encoder = _native.EncoderBase(_native.Program(image, level, cache_lines))
            for text, ids in zip(texts, expected, strict=True):
                assert list(encoder.encode(text).ids) == ids, (name, level, cache_lines, ascii(text[:200]))


@pytest.mark.skipif(SHARED is None, reason="needs ../shared, which is not here")
@pytest.mark.ci
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("gptoss", "gemma3") else pytest.mark.ordinary) for name in NAMES],
)
def test_published_tokenizers_on_samples(name: str, tmp_path: Path) -> None:
    check_published(name, 100_000, tmp_path, LEVELS)


@pytest.mark.skipif(SHARED is None, reason="needs ../shared, which is not here")
@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_published_tokenizers_on_every_corpus(name: str, tmp_path: Path) -> None:
    check_published(name, 1 << 40, tmp_path, LEVELS)
