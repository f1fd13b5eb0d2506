"""Laws of the prefix cache: the ids through it are the ids without, whatever the tokens, their flags, the tokenizer,
the texts, the budget, the second level and the threads."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Reference

from tests.cache.backends import Bytes, Remembering
from tests.support import tokenizer_maker as maker
from tests.support.material import SHARED, SMALL_DIR, Artifacts
from tests.support.native_tokenizers import native_file
from tests.support.text_cut_cases import CONTENTS, FLAGS, row
from tests.support.tiers import blocks_of_seeds
from toktier.cache import PrefixCache, PrefixStorage
from toktier.cache.overlaps import overlapped_by, overlapping_pair
from toktier.errors import ProgramUnsupported, ToktierError, UnsupportedConfig

LETTERS = "ab<|é"


@given(st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=5, unique=True))
def test_law_an_overlap_is_a_text_in_which_two_occurrences_meet(strings: list[str]) -> None:
    """Beside every text of the letters that two of the strings can make together."""

    def meet(a: str, b: str) -> bool:
        """Whether `b` can stand at a character of `a`, itself apart."""
        return any(
            all(a[i] == b[i - at] for i in range(at, min(len(a), at + len(b)))) for at in range(len(a)) if at or a != b
        )

    expected = any(meet(a, b) for a in strings for b in strings)
    assert (overlapping_pair(strings) is not None) == expected
    for i, string in enumerate(strings):
        others = strings[:i] + strings[i + 1 :]
        crossing = any(meet(string, other) or meet(other, string) for other in others)
        assert (string in overlapped_by([string], others)) == crossing


def safe(strings: Sequence[str]) -> list[str]:
    kept: list[str] = []
    for string in strings:
        if overlapping_pair([*kept, string]) is None:
            kept.append(string)
    return kept or ["<|a|>"]


PIECES = st.lists(st.one_of(st.text(LETTERS, max_size=6), st.integers(0, 7)), max_size=12)


@given(
    st.lists(st.text(LETTERS, min_size=1, max_size=5), min_size=1, max_size=6, unique=True),
    st.lists(PIECES, min_size=1, max_size=6),
    st.integers(0, 1500),
    st.booleans(),
    st.sampled_from(["payload", "resident"]),
    st.booleans(),
)
def test_law_ids_are_those_without_a_cache_at_any_budget(
    strings: list[str], pieces: list[list[str | int]], capacity: int, extend: bool, budget: str, second: bool
) -> None:
    specials = safe(strings)
    level = Remembering() if second else None
    storage = PrefixStorage(capacity, budget=budget, second_level=level)
    texts = ["".join(p if isinstance(p, str) else specials[p % len(specials)] for p in of_one) for of_one in pieces]
    used = []
    cache = PrefixCache(
        Bytes(), specials, storage=storage, extend=extend, on_tokens=lambda *usage: used.append(sum(usage))
    )
    assert cache.enabled
    for text in texts * 2:
        assert cache.encode(text) == list(text.encode())
    stats = cache.stats()
    assert stats["hits"] + stats["misses"] == 2 * len(texts)
    assert used == [len(text.encode()) for text in texts] * 2
    assert stats["cached_tokens"] + stats["uncached_tokens"] == sum(used)
    held = storage.stats()
    assert held["bytes" if budget == "payload" else "resident_bytes"] <= capacity


@given(st.integers(-3, 9), st.binary(max_size=40))
@settings(max_examples=60)
def test_law_answers_of_a_second_level_that_cannot_be_are_not_taken(index: int, ids: bytes) -> None:
    """A key stands for its ids; what is checked here is that no answer can break the putting together."""
    text = "<s>one<s>two<s>three"
    level = Remembering([(index, ids)])
    cache = PrefixCache(Bytes(), ["<s>"], second_level=level)
    possible = 0 <= index < 3 and len(ids) % 4 == 0
    got = list(cache.encode(text))
    assert cache.stats()["second_level_hits"] == possible
    assert possible or got == list(text.encode())


def test_a_second_level_shares_between_processes_storages() -> None:
    level = Remembering()
    first = PrefixCache(Bytes(), ["<s>"], namespace="n", second_level=level)
    text = "<s>system<s>user<s>answer"
    first.encode(text)
    assert first.stats()["misses"] == 1
    assert len(level.values) == 3
    second = PrefixCache(Bytes(), ["<s>"], namespace="n", second_level=level)
    assert second.encode(text + "<s>more") == list((text + "<s>more").encode())
    stats = second.stats()
    assert (stats["hits"], stats["second_level_hits"]) == (1, 1)
    assert stats["cached_tokens"] == len("<s>system<s>user<s>")
    assert stats["entries"] == 2
    assert len(level.values) == 4
    asked = len(level.asked)
    second.encode(text + "<s>more")
    assert len(level.asked) == asked


def test_law_of_a_long_text_a_second_level_is_told_both_ends_alone() -> None:
    level = Remembering()
    cache = PrefixCache(Bytes(), ["<s>"], second_level=level)
    cache.encode("<s>".join(str(i) for i in range(200)))
    assert len(level.values) == 16


def documents(seeds: range) -> Iterator[maker.Document]:
    """Random tokenizers with added tokens of every flag that overlap, and two that most texts may be cut behind."""
    for seed in seeds:
        rng = random.Random(seed)
        document = maker.random_document(seed)
        if rng.random() < 0.8:
            document["truncation"] = document["padding"] = None
        taken = {token["content"] for token in document["added_tokens"]}
        for content in rng.sample(CONTENTS, rng.randrange(3)):
            if content not in taken:
                flags = {name: rng.random() < 0.2 for name in FLAGS} | {"special": rng.random() < 0.7}
                document["added_tokens"].append(maker.added(content, **flags))
        for content in ("<|u|>", "<|v|>"):
            document["added_tokens"].append(maker.added(content, special=True, normalized=rng.random() < 0.2))
        yield document


def conversation(rng: random.Random, specials: Sequence[str]) -> list[str]:
    text = ""
    texts = []
    for _ in range(rng.randrange(1, 5)):
        text += "".join(
            rng.choice(specials) if rng.random() < 0.4 else maker.random_text(rng, 6) for _ in range(rng.randrange(6))
        )
        texts.append(text)
    return texts


def check_random(seeds: range, conversations: int, directory: Path) -> dict[str, int]:
    """Each through caches over the native engine and over the reference; all against the reference."""
    tally = {"texts": 0, "hits": 0, "on": 0, "dropped": 0, "off": 0, "unplaced": 0}
    path = directory / "tokenizer.json"
    for seed, document in zip(seeds, documents(seeds), strict=True):
        path.write_bytes(maker.encoded(document))
        try:
            native = native_file(path)
            reference = Reference.from_file(str(path))
        except (ProgramUnsupported, UnsupportedConfig):
            continue
        rng = random.Random(~seed)
        specials = [token["content"] for token in document["added_tokens"]]
        caches = [
            PrefixCache(inner, chosen, warn=False, extend=rng.random() < 0.5, capacity=rng.choice((2_000, 1 << 20)))
            for inner in (native, reference)
            for chosen in (None, ["<|u|>", "<|v|>"])
        ]
        for _ in range(conversations):
            for text in conversation(rng, specials):
                whole = row(reference, text)
                if whole is None:
                    continue
                tally["texts"] += 1
                for cache in caches:
                    with contextlib.suppress(ToktierError):
                        assert cache.encode(text) == whole[0], (seed, ascii(text), cache.explain())
                flag = rng.random() < 0.7
                with contextlib.suppress(ToktierError):
                    alone, through = native.encode(text, flag), caches[0].encode(text.encode(), flag)
                    assert through == alone, (seed, ascii(text), caches[0].explain())
                    assert (through.offsets, through.tokens) == (alone.offsets, alone.tokens), (seed, ascii(text))
        for cache in caches:
            told = cache.explain()
            tally["hits"] += told["stats"]["hits"]
            tally["unplaced"] += told["stats"]["unplaced"]
            tally["on"] += told["enabled"]
            tally["off"] += not told["enabled"]
            tally["dropped"] += bool(told["dropped_tokens"])
    return tally


def test_law_random_tokenizers_with_tokens_of_every_flag(tmp_path: Path) -> None:
    tally = check_random(range(12), 6, tmp_path)
    assert tally["hits"] > 50
    assert tally["on"] > 10
    assert tally["dropped"] > 3
    assert tally["off"] > 3
    assert tally["unplaced"] < tally["hits"]  # contents that the model makes ids of, too


@pytest.mark.parametrize("block", blocks_of_seeds(8, in_ci=0))
def test_law_many_random_tokenizers(block: int, tmp_path: Path) -> None:
    tally = check_random(range(1000 + 100 * block, 1100 + 100 * block), 8, tmp_path)
    assert tally["hits"] > 800


def artifact_names() -> list[Any]:
    names = [] if SHARED is None else sorted(p.name.split(".")[0] for p in (SHARED / "artifacts").glob("*.json.zst"))
    return [pytest.param(n, marks=pytest.mark.ci if n in ("llama2", "qwen3") else pytest.mark.full) for n in names]


@pytest.mark.parametrize("name", artifact_names())
def test_a28_law_mixes_of_text_and_special_tokens(name: str, artifacts: Artifacts) -> None:
    path = artifacts.path(name)
    reference = Reference.from_file(str(path))
    specials = [token.content for token in reference.get_added_tokens_decoder().values() if token.special]
    assert overlapping_pair(specials) is None
    caches = [PrefixCache(reference)]
    with contextlib.suppress(ProgramUnsupported):
        caches.append(PrefixCache(native_file(path)))
    rng = random.Random(name)
    for _ in range(200):
        pieces = [maker.random_text(rng) for _ in range(rng.randrange(1, 9))]
        text = pieces[0] + "".join(rng.choice(specials) + piece for piece in pieces[1:])
        whole = reference.encode(text, add_special_tokens=False).ids
        for cache in caches:
            assert cache.encode(text) == whole, ascii(text)
            assert cache.encode(text + specials[0] + "x") is not None
            assert cache.encode(text) == whole, ascii(text)
    for cache in caches:
        assert cache.stats()["hits"] >= 200
        assert cache.stats()["unplaced"] == 0


def test_law_threads_share_a_storage_that_is_too_small() -> None:
    storage = PrefixStorage(6_000)
    wrong: list[str] = []
    counts = {"texts": 0, "ids": 0}
    caches = [PrefixCache(Bytes(256 * i), ["<s>", "</s>"], namespace=str(i), storage=storage) for i in range(2)]
    guard = threading.Lock()

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(150):
            which = rng.randrange(2)
            text = "".join(rng.choice(("<s>", "</s>", "text ", "é" * rng.randrange(40))) for _ in range(12))
            text = f"<s>shared</s>{rng.randrange(4)}" + text
            found = caches[which].encode(text)
            if list(found) != [byte + 256 * which for byte in text.encode()]:
                wrong.append(text)
            with guard:
                counts["texts"] += 1
                counts["ids"] += len(found)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    stats = [cache.stats() for cache in caches]
    assert sum(s["hits"] + s["misses"] for s in stats) == counts["texts"] == 8 * 150
    assert sum(s["cached_tokens"] + s["uncached_tokens"] for s in stats) == counts["ids"]
    assert storage.stats()["bytes"] <= 6_000
    assert storage.stats()["bytes"] == sum(s["bytes"] for s in stats)
    assert storage.stats()["evicted"] > 0


def test_law_threads_on_the_native_engine_share_a_storage_that_is_too_small() -> None:
    """Texts of 2 KiB and more, for which scan, digests and encoding give up the lock of the interpreter."""
    plain = native_file(SMALL_DIR / "deepseek_like.json")
    begin, end = list(plain.special_tokens)[:2]
    turn = "Words of a turn that is long enough. " * 60
    conversations = [
        [begin + end.join(f"{chat} {i} {turn}" + "é" * chat for i in range(n)) for n in range(2, 7)]
        for chat in range(6)
    ]
    wanted = {text: plain.encode(text).ids for texts in conversations for text in texts}
    cache = PrefixCache(plain, storage=PrefixStorage(40_000, budget="resident"))
    wrong: list[str] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(60):
            text = rng.choice(rng.choice(conversations))
            if cache.encode(text).ids != wanted[text]:
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    stats, held = cache.stats(), cache.storage.stats()
    assert stats["hits"] + stats["misses"] == 8 * 60
    assert stats["unplaced"] == 0
    assert held["resident_bytes"] <= 40_000
    assert held["evicted"] + held["refused"] > 0
