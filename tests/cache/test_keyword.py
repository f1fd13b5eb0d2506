"""`prefix_cache=` of from_file: over the native engine and over the reference, and when "auto" leaves it off."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

import toktier
from tests.cache.backends import IM, Remembering, chatml
from tests.support.material import SMALL_DIR, changed_tokenizer, load_json
from tests.support.native_tokenizers import native_file
from toktier.cache import PrefixCache, PrefixStorage
from toktier.errors import ConfigInvalid, ToktierWarning

BASE = SMALL_DIR / "deepseek_like.json"


def specials() -> list[str]:
    return [t["content"] for t in load_json(BASE)["added_tokens"] if t["special"]]


def texts() -> list[str]:
    """Of a conversation, with the special tokens of the file, each long enough to be looked up."""
    begin, end = specials()[:2]
    filler = "Some words that make a turn long enough to be looked up. " * 20
    return [t.replace(IM[0], begin).replace(IM[1], end).replace("helpful", filler) for t in chatml(5)]


def by_reference(**more: Any) -> toktier.Tokenizer:
    tokenizer = toktier.from_file(BASE, tokenizer="hf", **more)
    assert tokenizer.explain(summary=True)["backend"] == "hf"
    return tokenizer


def test_the_native_engine_with_a_cache_gives_the_ids_without() -> None:
    plain, cached = native_file(BASE), native_file(BASE, prefix_cache=1 << 20)
    before = cached.native_calls
    for text in texts():
        for flag in (False, True):
            want = plain.encode(text, flag)
            got = cached.encode(text, flag)
            assert got == want
            assert got.offsets == want.offsets
            assert got.tokens == want.tokens
            assert got.backend == "fast_cpu"
    told = cached.explain()["prefix_cache"]
    assert told["enabled"]
    assert (told["stats"]["hits"], told["stats"]["misses"], told["stats"]["unplaced"]) == (8, 2, 0)
    assert told["stats"]["resident_bytes"] <= 1 << 20
    texts_served, bytes_served = (b - a for a, b in zip(before, cached.native_calls, strict=True))
    assert texts_served == 10
    assert bytes_served < sum(len(text.encode()) for text in texts())


def test_the_reference_with_a_cache_gives_the_ids_without() -> None:
    plain, cached = by_reference(), by_reference(prefix_cache="auto")
    for text in texts():
        assert cached.encode(text) == plain.encode(text)
    told = cached.explain()
    assert (told["prefix_cache"]["stats"]["hits"], told["prefix_cache"]["stats"]["misses"]) == (4, 1)
    assert told["counters"]["calls"]["hf"] == 5
    text = texts()[-1]
    for encoding in (cached.encode(text, lookup="off"), cached.encode(text, offsets=True)):
        assert encoding.offsets == plain.encode(text).offsets
    assert cached.encode(text, plain=True) == plain.encode(text, plain=True)
    assert cached.encode(text, True) == plain.encode(text, True)
    segments = [(text, True), (text, False)]
    assert cached.encode_segments(segments) == plain.encode_segments(segments)
    assert cached.encode_batch([text])[0] == plain.encode(text)
    assert cached.explain()["prefix_cache"]["stats"]["hits"] == 4


def test_auto_leaves_it_off_on_the_native_engine() -> None:
    tokenizer = native_file(BASE, prefix_cache="auto")
    tokenizer.encode(texts()[0])
    told = tokenizer.explain()["prefix_cache"]
    assert not told["enabled"]
    assert "auto" in told["disabled"]


def test_without_the_keyword_there_is_none() -> None:
    assert native_file(BASE).explain()["prefix_cache"] == {"enabled": False, "disabled": "not asked for"}


def test_a_cache_that_is_given_brings_its_second_level() -> None:
    level = Remembering()
    given = PrefixCache(native_file(BASE), second_level=level)
    tokenizer = native_file(BASE, prefix_cache=given)
    tokenizer.encode(texts()[0])
    assert level.values
    assert tokenizer.explain()["prefix_cache"]["stats"]["misses"] == 1


@pytest.mark.parametrize("kind", ["cache", "storage"])
def test_tokenizers_of_one_file_share_a_storage(kind: str) -> None:
    storage = PrefixStorage()
    given = storage if kind == "storage" else PrefixCache(native_file(BASE), storage=storage)
    first, second = native_file(BASE, prefix_cache=given), by_reference(prefix_cache=given)
    text = texts()[0]
    assert first.encode(text) == second.encode(text)
    assert second.explain()["prefix_cache"]["stats"]["hits"] == 1
    assert storage.stats()["entries"] == first.explain()["prefix_cache"]["stats"]["entries"] > 0


def test_a_file_that_may_not_be_cut_warns_once_and_serves(tmp_path: Any) -> None:
    path = changed_tokenizer(
        BASE,
        tmp_path / "tokenizer.json",
        truncation={"direction": "Right", "max_length": 40, "strategy": "LongestFirst", "stride": 0},
    )
    with pytest.warns(ToktierWarning, match="truncates"):
        tokenizer = native_file(path, prefix_cache=1 << 20)
    assert tokenizer.encode(texts()[0]) == native_file(path).encode(texts()[0])
    assert tokenizer.explain()["prefix_cache"]["disabled"] == "the tokenizer truncates"


def test_a_pickle_begins_with_an_empty_cache_of_the_same_budget() -> None:
    tokenizer = native_file(BASE, prefix_cache=1 << 20)
    tokenizer.encode(texts()[0])
    again = pickle.loads(pickle.dumps(tokenizer))
    told = again.explain()["prefix_cache"]
    assert told["enabled"]
    assert (told["storage"]["capacity"], told["storage"]["entries"]) == (1 << 20, 0)
    assert again.encode(texts()[1]) == tokenizer.encode(texts()[1])


@pytest.mark.parametrize("value", ["on", -1, 1.5, True, 1 << 60])
def test_what_is_no_budget_is_refused(value: Any) -> None:
    with pytest.raises(ConfigInvalid):
        native_file(BASE, prefix_cache=value)


def test_texts_that_are_too_short_for_a_store_are_looked_up_here(tmp_path: Any) -> None:
    """From 4 KiB on the store is asked, below it the prefix cache."""
    tokenizer = native_file(BASE, store=tmp_path / "store", prefix_cache=1 << 20)
    begin, end = specials()[:2]
    short, long = (f"{begin}{'words of a turn ' * n}{end}" for n in (100, 400))
    for text in (short, long):
        for rest in ("one", "another"):
            assert tokenizer.encode(text + rest) == native_file(BASE).encode(text + rest)
    told = tokenizer.explain()["prefix_cache"]["stats"]
    assert (told["hits"], told["misses"]) == (1, 1)


@pytest.mark.parametrize(("version", "shares"), [("0.22.2", True), ("0.23.3", True), ("0.99.0", False)])
def test_ids_of_a_reference_of_another_version_are_shared_with_nobody(version: str, shares: bool) -> None:
    tokenizer = by_reference()
    plan = tokenizer._plan
    tokenizer._loaded_plan = replace(plan, facts=replace(plan.facts, reference_version=version))
    assert (tokenizer.prefix_cache_facts().namespace == native_file(BASE).prefix_cache_facts().namespace) == shares


def test_ids_of_a_file_beyond_the_compiler_are_shared_by_one_version(tmp_path: Any) -> None:
    """Nobody certified that two of them agree on it."""
    path = changed_tokenizer(BASE, tmp_path / "tokenizer.json", normalizer={"type": "Nmt"})
    with pytest.warns(ToktierWarning, match="not compiled"):
        tokenizer = toktier.from_file(path)
    assert tokenizer.fingerprint is None
    assert tokenizer._plan.facts.reference_version in (tokenizer.prefix_cache_facts().namespace or "")


def test_the_name_of_a_cache_that_is_given_keeps_tenants_apart() -> None:
    """Under the name and the fingerprint: a name alone would give one tokenizer the ids of another."""
    storage = PrefixStorage()
    text = texts()[0]
    tenants = {name: PrefixCache(native_file(BASE), None, name, storage) for name in ("a", "b")}
    for name, hits in (("a", 0), ("b", 0), ("a", 1)):
        tokenizer = native_file(BASE, prefix_cache=tenants[name])
        assert tokenizer.encode(text) == native_file(BASE).encode(text)
        assert tokenizer.explain()["prefix_cache"]["stats"]["hits"] == hits
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again._prefix_cache.namespace == tokenizer._prefix_cache.namespace
    assert again._prefix_cache.namespace != native_file(BASE, prefix_cache=1)._prefix_cache.namespace
    other = native_file(SMALL_DIR / "cl100k_like.json", prefix_cache=tenants["a"])
    assert other.encode(text) == native_file(SMALL_DIR / "cl100k_like.json").encode(text)
