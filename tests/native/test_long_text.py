"""A long text is parted among threads: its ids are those of one thread and of the reference."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.support.material import small_tokenizers
from tests.support.native_encoders import resident_bytes, shared_pair, threads_at_most
from toktier import _native
from toktier.errors import InvalidText
from toktier.program.compile import compile_tokenizer

UNITS = (
    *(
        "word ",
        "don't ",
        "x = 1;\n",
        "    ",
        "\t\n",
        "12345 ",
        "文字列です。",
        "한국어 ",
        "жизнь ",
        "e\u0301",
        "กำลัง",
        "👩‍🚀 ",
    ),
    *("<|endoftext|>", "<s>", "</s>", "[MASK] ", "<|im_start|>user\n", "\u2028", "--------", "aaaaaaaaaaaaaaaaaaaa"),
)


def text_of(size: int, seed: int) -> str:
    """At least `size` bytes of everything."""
    return "".join(random.Random(seed).choices(UNITS, k=size // 5))


@pytest.mark.parametrize("path", small_tokenizers(), ids=lambda path: path.stem)
def test_ids_are_those_of_one_thread_and_of_the_reference(path: Path) -> None:
    document = path.read_text(encoding="utf-8")
    encoder = _native.EncoderBase(_native.Program(compile_tokenizer(document.encode())))
    reference = Tokenizer.from_str(document)
    text = text_of(100_000, seed=7)  # four bytes a character as it is stored, and so long enough
    for special in (False, True):
        expected = reference.encode(text, add_special_tokens=special).ids
        batch = encoder.encode_batch(["short", text, "", text[:50]], special, workers=5)
        assert batch[1].backend == "fast_cpu"
        assert batch[1].ids == expected
        assert encoder.count_batch([text, "a"], special, workers=5)[0] == len(expected)
        single = encoder.encode(text, special)
        assert single.ids == expected
        assert single.offsets == reference.encode(text, add_special_tokens=special).offsets
        assert [batch[k].ids for k in (0, 2, 3)] == [encoder.encode(t, special).ids for t in ("short", "", text[:50])]


def test_text_without_a_cut_stays_whole() -> None:
    encoder, reference = shared_pair()
    for text in (" " * 300_000, "a" * 300_000, "\n" * 300_000):
        expected = reference.encode(text).ids
        assert encoder.encode_batch([text], workers=4)[0].ids == expected
        assert encoder.encode(text).ids == expected


def test_faults_of_a_long_text_are_those_of_a_short_one() -> None:
    encoder = shared_pair()[0]
    text = text_of(600_000, seed=8)
    for bad, at in ((text + "\ud800", len(text)), (text.encode() + b"\xff", len(text.encode()))):
        with pytest.raises(InvalidText) as error:
            encoder.encode(bad)
        assert error.value.details == {"position": at}
        assert "item" not in str(error.value)
        with pytest.raises(InvalidText) as error:
            encoder.encode_batch(["a", bad, "\ud800"], workers=3)
        assert error.value.details == {"position": at, "item": 1}


def test_a_long_text_counts_as_one_call() -> None:
    encoder = shared_pair()[0]
    text = text_of(600_000, seed=9)
    calls, size = encoder.native_calls
    encoder.encode(text)
    encoder.encode_batch([text], workers=4)
    assert encoder.native_calls == (calls + 2, size + 2 * len(text.encode()))


def test_no_thread_outlives_a_long_text_and_memory_does_not_grow() -> None:
    encoder = shared_pair()[0]
    text = text_of(1_000_000, seed=10)
    for _ in range(4):
        encoder.encode(text)
    threads = len(os.listdir("/proc/self/task"))

    def growth() -> int:
        before = resident_bytes()
        for _ in range(30):
            encoder.encode(text)
        return resident_bytes() - before

    # As many threads take part as the host has idle cores: one more than ever before has its memory to make.
    assert any(growth() < 8 << 20 for _ in range(5))
    assert threads_at_most(threads)
