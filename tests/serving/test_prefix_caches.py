"""Caches of prefixes behind a batcher: asked as `encode` asks them, whoever encodes, and a slow one holds up nobody."""

from __future__ import annotations

import threading

import pytest
import tokenizers

import toktier
from tests.serving.held_tokenizer import PATIENCE
from tests.support.material import SMALL_DIR
from tests.support.native_tokenizers import native_file
from toktier.cache import PrefixCache
from toktier.serving import Batcher, Limits

QUEUED = Limits(inline_bytes=0)


def test_a_prefix_cache_is_used_through_a_batcher() -> None:
    tok = native_file(SMALL_DIR / "llama_like.json")
    special = next(iter(tok.special_tokens))
    texts = [f"where are the boats?{special}" * turns + "on the beach" for turns in (1, 2, 3)]
    cache = PrefixCache(tok)
    with Batcher(cache) as batcher:
        for text in texts:
            assert batcher.submit(text).result(PATIENCE).ids == tok.encode(text).ids
        assert batcher.submit(texts[0], plain=True).result(PATIENCE).ids == tok.encode(texts[0], plain=True).ids
        assert batcher.submit("a text", session="s").result(PATIENCE).ids == tok.encode("a text").ids
        assert batcher.stats()["texts"] == 4
    assert (cache.stats()["misses"], cache.stats()["hits"]) == (1, 2)


@pytest.mark.parametrize("pads", [False, True])
def test_a_prefix_cache_over_the_reference_itself_gives_each_text_its_own_ids(pads: bool) -> None:
    reference = tokenizers.Tokenizer.from_file(str(SMALL_DIR / "llama_like.json"))
    if pads:
        reference.enable_padding()
    cache = PrefixCache(reference, warn=False)
    assert cache.enabled is not pads
    held = threading.Event()

    def hold(_: object) -> None:
        if threading.current_thread() is not threading.main_thread():  # it was answered before this could be asked for
            held.wait(PATIENCE)

    with Batcher(cache, QUEUED) as batcher:
        batcher.submit("word " * 20_000).add_done_callback(hold)
        texts = ["a", "a longer text of several words", ""]
        futures = [batcher.submit(text) for text in texts]
        held.set()
        for text, future in zip(texts, futures, strict=True):
            assert list(future.result(PATIENCE).ids) == reference.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("backend", ["fast_cpu", "hf"])
def test_the_prefix_cache_of_a_tokenizer_is_asked_as_encode_asks_it(backend: str) -> None:
    tok = toktier.from_file(SMALL_DIR / "llama_like.json", policy="supported", tokenizer=backend, prefix_cache=1 << 20)
    part = f"where are the boats? {'on the beach ' * 200}{next(iter(tok.special_tokens))}"
    texts = [part * turns + "on the beach" for turns in (1, 2, 3)]
    with Batcher(tok) as batcher:
        for text in texts:
            assert batcher.submit(text).result(PATIENCE).ids == tok.encode(text, lookup="off").ids
        for more in ({"lookup": "off"}, {"plain": True}):
            found = batcher.submit(texts[0], **more).result(PATIENCE)  # type: ignore[arg-type]
            assert found.ids == tok.encode(texts[0], **more).ids  # type: ignore[arg-type]
        assert batcher.stats()["texts"] == 5
        short = part[-1500:] + "on the beach"  # its caller encodes it, where the engine does
        assert batcher.submit(short, lookup="off").result(PATIENCE).ids == tok.encode(short, lookup="off").ids
    stats = tok.explain()["prefix_cache"]["stats"]
    assert (stats["misses"], stats["hits"]) == (1, 2)


def test_a_prefix_cache_with_a_second_level_keeps_nobody_waiting() -> None:
    class Slow:
        asked = 0

        def lookup(self, keys: object) -> None:
            self.asked += 1

        def store(self, key: bytes, ids: object) -> None: ...

    tok = native_file(SMALL_DIR / "llama_like.json")
    text = f"where are the boats?{next(iter(tok.special_tokens))}on the beach"
    slow = Slow()
    with Batcher(PrefixCache(tok, second_level=slow)) as batcher:
        assert batcher.submit(text).result(PATIENCE).ids == tok.encode(text).ids
        assert (batcher.stats()["alone"], batcher.stats()["texts"], slow.asked) == (1, 0, 1)
