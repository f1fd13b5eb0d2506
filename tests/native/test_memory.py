"""What a process keeps is bounded: text of ever new words grows nothing once its contexts are warm."""

from __future__ import annotations

import random
import threading

import pytest

from tests.support.native_encoders import resident_bytes, shared_pair

LETTERS = ("abcdefghijklmnop", "éèüöß", "жзиклмн", "文字列符号化", "กขคงจ", "😀😁😂🤣")


def new_words(seed: int) -> str:
    """About 100 KB of words that no other seed has."""
    generator = random.Random(seed)
    return " ".join(
        "".join(generator.choices(generator.choice(LETTERS), k=generator.randrange(2, 40))) for _ in range(2500)
    )


@pytest.mark.unsanitized  # a sanitizer keeps what was freed for a while
def test_new_words_do_not_grow_a_warm_context() -> None:
    encoder = shared_pair()[0]
    for seed in range(60):
        encoder.encode(new_words(seed))
    before = resident_bytes()
    for seed in range(100, 160):
        encoder.encode(new_words(seed))
    assert resident_bytes() - before < 4 << 20


def test_threads_one_after_the_other_share_contexts() -> None:
    encoder = shared_pair()[0]

    def run(seed: int) -> None:
        thread = threading.Thread(target=lambda: encoder.encode(new_words(seed)))
        thread.start()
        thread.join()

    for seed in range(10):
        run(seed)
    before = resident_bytes()
    for seed in range(200, 240):
        run(seed)
    assert resident_bytes() - before < 4 << 20
