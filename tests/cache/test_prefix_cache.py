"""PrefixCache around the cases: texts that are none, arguments that go past it, objects that others change."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import AddedToken

from tests.cache.backends import S2, Bytes, Watched, word_level
from tests.support.material import SMALL_DIR
from tests.support.native_tokenizers import native_file
from toktier.cache import PrefixCache, PrefixStorage
from toktier.errors import ConfigInvalid, InvalidText

NATIVE = SMALL_DIR / "deepseek_like.json"


@pytest.mark.parametrize("text", ["a\ud800b", b"a\xff", "<s>x</s>\udfff"])
@pytest.mark.parametrize("kind", ["native", "bytes"])
def test_what_is_no_unicode_is_refused_and_counts_as_no_text(text: Any, kind: str) -> None:
    inner = native_file(NATIVE) if kind == "native" else Bytes()
    seen = Watched(inner, None if kind == "native" else S2)
    with pytest.raises(InvalidText):
        seen.cache.encode(text)
    with pytest.raises(TypeError):
        seen.cache.encode(7)
    assert seen.numbers("hits", "misses", "entries") == (0, 0, 0)
    assert seen.events == []


def test_texts_may_be_bytes() -> None:
    tokenizer = native_file(NATIVE)
    special = next(iter(tokenizer.special_tokens))
    text = f"één{special}twee"
    seen = Watched(tokenizer)
    for given in (text, text.encode(), bytearray(text.encode()), memoryview(text.encode())):
        assert seen.cache.encode(given) == tokenizer.encode(text)
    assert seen.numbers("hits", "misses") == (3, 1)


def test_nothing_stays_held_when_encoding_or_an_observer_fails() -> None:
    inner = Bytes()
    cache = PrefixCache(inner, S2)
    cache.encode("<s>one</s>two")
    inner.arm(1)
    with pytest.raises(RuntimeError):
        cache.encode("<s>one</s>three<s>four")

    def fails() -> None:
        raise KeyError("observer")

    cache.on_hit = fails
    inner.arm()
    with pytest.raises(KeyError):
        cache.encode("<s>one</s>three")
    cache.storage.clear()
    assert cache.storage.stats()["entries"] == 0


def test_arguments_of_the_backend_go_past_the_cache() -> None:
    tokenizer = native_file(NATIVE)
    special = next(iter(tokenizer.special_tokens))
    text = f"one{special}two"
    seen = Watched(tokenizer)
    seen.cache.encode(text)
    assert seen.cache.encode(text, plain=True) == tokenizer.encode(text, plain=True)
    assert seen.cache.encode(text, offsets=True).offsets == tokenizer.encode(text).offsets
    assert seen.numbers("hits", "misses", "bypassed") == (0, 1, 2)
    assert seen.events == ["miss"]
    assert seen.usage == [(0, len(tokenizer.encode(text, plain=plain))) for plain in (False, True, False)]


def test_an_object_of_the_reference_that_is_changed_later_is_not_cut() -> None:
    inner = word_level({"<s>": 1, "hello": 2, "world": 3}, AddedToken("<s>", normalized=False))
    cache = PrefixCache(inner)
    text = "hello<s>world"
    for _ in range(2):
        assert cache.encode(text).ids == [2, 1, 3]
    inner.enable_truncation(2)
    assert cache.encode(text).ids == [2, 1]
    inner.no_truncation()
    inner.enable_padding(length=5, pad_id=0, pad_token="[UNK]")
    assert cache.encode(text).ids == [2, 1, 3, 0, 0]
    inner.no_padding()
    inner.encode_special_tokens = True
    assert cache.encode(text).ids == [0]
    inner.encode_special_tokens = False
    assert cache.encode(text).ids == [2, 1, 3]
    assert cache.stats()["bypassed"] == 3


def test_backends_without_a_name_share_nothing_unless_told() -> None:
    storage = PrefixStorage()
    first, second = (PrefixCache(Bytes(offset), S2, storage=storage) for offset in (0, 256))
    text = "<s>one</s>two"
    assert first.encode(text) == list(text.encode())
    assert second.encode(text) == [byte + 256 for byte in text.encode()]
    assert second.stats()["misses"] == 1


def test_what_is_not_named_here_is_the_backends() -> None:
    tokenizer = native_file(NATIVE)
    cache = PrefixCache(tokenizer)
    assert cache.vocab_size == tokenizer.vocab_size
    assert cache.token_to_id("a") == tokenizer.token_to_id("a")
    assert cache.count("a text") == tokenizer.count("a text")
    with pytest.raises(AttributeError):
        _ = cache.nonsense


def test_a_storage_has_its_own_capacity() -> None:
    with pytest.raises(ConfigInvalid):
        PrefixCache(Bytes(), S2, storage=PrefixStorage(), capacity=1)


@pytest.mark.parametrize("arguments", [{"capacity": -1}, {"capacity": 1.5}, {"capacity": True}, {"budget": "other"}])
def test_a_storage_refuses_what_is_no_budget(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigInvalid):
        PrefixStorage(**arguments)
