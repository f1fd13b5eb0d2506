"""What a process keeps is bounded: text of ever new words grows nothing once its contexts are warm."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from tests.support.native_encoders import resident_bytes, shared_pair

LETTERS = ("abcdefghijklmnop", "éèüöß", "жзиклмн", "文字列符号化", "กขคงจ", "😀😁😂🤣")


def new_words(seed: int) -> str:
    """About 100 KB of words that no other seed has."""
    generator = random.Random(seed)
    return " ".join(
        "".join(generator.choices(generator.choice(LETTERS), k=generator.randrange(2, 40))) for _ in range(2500)
    )


def grows_every_time(work: Callable[[int], None]) -> bool:
    """Whether resident memory grew by 4 MB in each of five rounds. Other tests run in this process, and an allocator
    gives back when it likes: one round alone may show either."""
    for turn in range(5):
        before = resident_bytes()
        for seed in range(200 + 40 * turn, 240 + 40 * turn):
            work(seed)
        if resident_bytes() - before < 4 << 20:
            return False
    return True


@pytest.mark.unsanitized  # a sanitizer keeps what was freed for a while
def test_new_words_do_not_grow_a_warm_context() -> None:
    encoder = shared_pair()[0]
    for seed in range(60):
        encoder.encode(new_words(seed))
    assert not grows_every_time(lambda seed: encoder.encode(new_words(seed)))


@pytest.mark.unsanitized  # a sanitizer keeps what was freed for a while
def test_threads_one_after_the_other_share_contexts() -> None:
    encoder = shared_pair()[0]

    def run(seed: int) -> None:
        thread = threading.Thread(target=lambda: encoder.encode(new_words(seed)))
        thread.start()
        thread.join()

    for seed in range(10):
        run(seed)
    assert not grows_every_time(run)
