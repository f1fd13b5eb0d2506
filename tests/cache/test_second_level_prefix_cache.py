"""The prefix cache over a second level on a real server: what one process encoded, another one has, and whatever
happens to the server the ids are those of the tokenizer alone."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cache.backends import Bytes
from tests.sessions.redis_process import RedisProcess, needed
from tests.support.material import SMALL_DIR
from tests.support.native_tokenizers import native_file
from tests.support.second_levels import Shared, balanced, until
from toktier import Tokenizer
from toktier.cache import PrefixCache, PrefixStorage

CHATS = 8
WORDS = ["what", "is", "the", "七", "of", "naïve", "Ωmega", "12", "345", "and", "so", "on"]
SMALL = SMALL_DIR / "cl100k_like.json"


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    needed()
    process = RedisProcess(tmp_path / "server")
    one = Shared(process)
    yield one
    one.close()
    process.close()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return native_file(SMALL)


def specials(tokenizer: Tokenizer) -> list[str]:
    """Behind which a prefix may end."""
    cache = PrefixCache(tokenizer)
    assert cache.enabled
    return list(cache.explain()["boundary_tokens"])


def chat(own: int, turns: int, special: str) -> list[str]:
    """The texts of a conversation that grows, each with the one before it as its beginning."""
    choose = random.Random(own)
    text, texts = f"{special}You are a helpful assistant. " * 3, []
    for turn in range(turns):
        words = " ".join(choose.choices(WORDS, k=200))
        text += f"{special}user {own} {turn}: {words}{special}answer: {words[::-1]} "
        texts.append(text)
    return texts


@pytest.mark.usefixtures("patient")
def test_what_one_process_encoded_another_one_finds(shared: Shared, tokenizer: Tokenizer) -> None:
    special = specials(tokenizer)[0]
    texts = chat(0, 6, special)
    first = PrefixCache(tokenizer, second_level=shared.level())
    for text in texts[:-1]:
        assert list(first.encode(text)) == list(tokenizer.encode(text))
    levels = shared.levels[0]
    until(lambda: levels.stats()["pending"] == 0)
    levels.close()
    assert levels.stats()["dropped"] == levels.stats()["write_errors"] == 0
    second = PrefixCache(tokenizer, second_level=shared.level())
    seen: list[tuple[int, int]] = []
    second.on_tokens = lambda cached, uncached: seen.append((cached, uncached))
    assert list(second.encode(texts[-1])) == list(tokenizer.encode(texts[-1]))
    assert second.stats()["second_level_hits"] == second.stats()["hits"] == 1
    known = texts[-2][: texts[-2].rindex(special) + len(special)]
    assert seen[0][0] == len(tokenizer.encode(known))
    assert shared.levels[1].stats()["hits"] == 1


@pytest.mark.usefixtures("patient")
def test_another_namespace_finds_nothing(shared: Shared) -> None:
    level = shared.level()
    text = "<s>one<s>two"
    for namespace, offset in (("a", 0), ("b", 1000)):
        cache = PrefixCache(Bytes(offset), ["<s>"], namespace=namespace, second_level=level)
        assert list(cache.encode(text)) == [byte + offset for byte in text.encode()]
        until(lambda: level.stats()["pending"] == 0)
        assert cache.stats()["second_level_hits"] == 0


@pytest.mark.usefixtures("patient")
def test_a_damaged_value_is_encoded_anew(shared: Shared) -> None:
    text = "<s>one<s>two<s>three"
    level = shared.level()
    PrefixCache(Bytes(), ["<s>"], namespace="n", second_level=level).encode(text)
    until(lambda: level.stats()["written"] == 3)
    with shared.client() as client:
        for name in client.keys(b"*"):
            client.setrange(name, 5, b"\xff")
    cache = PrefixCache(Bytes(), ["<s>"], namespace="n", second_level=level)
    assert list(cache.encode(text)) == list(text.encode())
    assert (level.stats()["damaged"], cache.stats()["second_level_hits"]) == (1, 0)


@pytest.mark.ci
def test_ids_are_exact_while_the_server_is_hung_killed_and_started_again(shared: Shared, tokenizer: Tokenizer) -> None:
    special = specials(tokenizer)[0]
    chats = [chat(own, 6, special) for own in range(CHATS)]
    expected = {text: list(tokenizer.encode(text)) for texts in chats for text in texts}
    stop, wrong, encoded = threading.Event(), [], [0] * 4
    levels = [shared.level(timeout=0.05, max_pending_writes=16) for _ in range(2)]

    def work(own: int) -> None:
        choose = random.Random(own)
        while not stop.is_set():
            # Each time as a process that has just begun: what it knows, it knows from the server.
            cache = PrefixCache(tokenizer, storage=PrefixStorage(1 << 20), second_level=levels[own % 2])
            for text in choose.choice(chats):
                if list(cache.encode(text)) != expected[text]:
                    wrong.append(text)
                encoded[own] += 1
            if levels[own % 2].stats()["pending"] > 16:
                wrong.append("pending")

    threads = [threading.Thread(target=work, args=(own,)) for own in range(4)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: sum(level.stats()["hits"] for level in levels) > 0)
        for act in (shared.process.hang, shared.process.go_on, shared.process.kill, shared.process.start):
            act()
            if act in (shared.process.hang, shared.process.kill):
                until(lambda: all(level.stats()["paused"] for level in levels))
            before = list(encoded)
            until(lambda before=before: all(now > then for now, then in zip(encoded, before, strict=True)))
            time.sleep(0.2)
        before_hits = sum(level.stats()["hits"] for level in levels)
        until(lambda: sum(level.stats()["hits"] for level in levels) > before_hits)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    stats: list[dict[str, Any]] = [level.stats() for level in levels]
    assert all(balanced(one) for one in stats)
    assert all(one["pauses"] > 0 for one in stats)


@pytest.mark.usefixtures("patient")
def test_a_tokenizer_is_loaded_with_it(shared: Shared, tokenizer: Tokenizer) -> None:
    """As the page has it: by the storage."""
    special = specials(tokenizer)[0]
    *earlier, text = chat(1, 3, special)
    level = shared.level()
    for one in (earlier[-1], text):  # each in a tokenizer that knows nothing yet
        loaded = native_file(SMALL, prefix_cache=PrefixStorage(1 << 20, second_level=level))
        assert list(loaded.encode(one)) == list(tokenizer.encode(one))
        until(lambda: level.stats()["pending"] == 0)
    assert level.stats()["hits"] == 1
