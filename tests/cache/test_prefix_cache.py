"""PrefixCache around the cases: texts that are none, arguments that go past it, objects that others change."""

from __future__ import annotations

import re
import warnings
from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Reference

from tests.cache.backends import S2, Bytes, Remembering, Watched, word_level
from tests.support.material import SMALL_DIR
from tests.support.native_tokenizers import native_file
from toktier import Encoding
from toktier.cache import PrefixCache, PrefixStorage
from toktier.cache.facts import Added, Facts
from toktier.errors import ConfigInvalid, InvalidText, ToktierWarning

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


@pytest.mark.parametrize(
    "arguments",
    [{"special_tokens": "<s>"}, {"special_tokens": [b"<s>"]}, {"namespace": b"n"}, {"storage": 1 << 20}],
)
def test_arguments_of_another_kind_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigInvalid):
        PrefixCache(Bytes(), **{"special_tokens": S2, **arguments})


@pytest.mark.parametrize("text", ["<s>one", b"<s>one"])
def test_one_text_is_no_batch(text: Any) -> None:
    with pytest.raises(TypeError, match="several texts"):
        PrefixCache(Bytes(), S2).encode_batch(text)


class Stripping:
    """Hands on what it has not itself, as many wrappers do, and changes texts."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def encode(self, text: str, add_special_tokens: bool = False) -> Any:
        return self.inner.encode(text.strip(), add_special_tokens=add_special_tokens)


class Shouting(Stripping):
    def encode(self, text: str, add_special_tokens: bool = False) -> Any:
        return self.inner.encode(text.replace("a", "A"), add_special_tokens=add_special_tokens)


@pytest.mark.parametrize("kind", ["native", "reference"])
def test_a_wrapper_is_not_what_it_wraps(kind: str) -> None:
    inner: Any = native_file(NATIVE)
    special = next(iter(inner.special_tokens))
    if kind == "reference":
        inner = Reference.from_file(str(NATIVE))
    storage = PrefixStorage()
    text = f" a{special} a{special} a "
    for wrapped in (inner, Shouting(inner), Stripping(inner)):
        cache = PrefixCache(wrapped, storage=storage, warn=False)
        for _ in range(2):
            assert cache.encode(text).ids == list(wrapped.encode(text, add_special_tokens=False).ids)
        assert cache.enabled == (type(wrapped) is not Stripping)
    truncated = Reference.from_file(str(NATIVE))
    truncated.enable_truncation(2)
    assert not PrefixCache(Shouting(truncated), warn=False).enabled


class StoodInFor:
    """An engine that takes in "<s>", and another one in its place where `fails` is in a text."""

    def __init__(self, fails: str) -> None:
        self.fails = fails

    def prefix_cache_facts(self) -> Facts:
        return Facts((Added(1, "<s>"),), namespace="engine", served_by="engine")

    def encode(self, text: str, add_special_tokens: bool = False) -> Encoding:
        by, offset = ("other", 256) if self.fails in text else ("engine", 0)
        return Encoding.from_ids([byte + offset for byte in text.encode()], backend=by)


def test_ids_of_two_engines_are_not_put_together() -> None:
    seen = Watched(StoodInFor("fail"))
    for text in ("<s>one<s>fail<s>two", "<s>one<s>two", "<s>one<s>fail<s>two", "<s>one<s>fail"):
        whole = StoodInFor("fail").encode(text)
        found = seen.cache.encode(text)
        assert (found.ids, found.backend) == (whole.ids, whole.backend)
    assert seen.numbers("hits", "misses", "unplaced") == (3, 1, 3)
    assert [sum(usage) for usage in seen.usage] == [19, 12, 19, 13]
    assert sum(seen.numbers("cached_tokens", "uncached_tokens")) == 19 + 12 + 19 + 13


class Raising(Remembering):
    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def lookup(self, keys: Sequence[bytes], /) -> tuple[int, bytes] | None:
        if "lookup" in self.names:
            raise OSError("redis://user:secret@host")
        if "nonsense" in self.names:
            return (0, bytearray(4))  # type: ignore[return-value]
        return super().lookup(keys)

    def store(self, key: bytes, ids: bytes, /) -> None:
        if "store" in self.names:
            raise KeyError("secret")
        super().store(key, ids)


@pytest.mark.parametrize("names", [("lookup",), ("store",), ("lookup", "store"), ("nonsense",)])
def test_a_second_level_that_raises_is_one_that_knows_nothing(names: tuple[str, ...]) -> None:
    seen = Watched(Bytes(), S2, second_level=Raising(*names))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for i in range(3):
            text = f"{i}<s>one</s>two"
            assert seen.cache.encode(text) == list(text.encode())
    assert len(told) == 1
    assert "secret" not in str(told[0].message)
    assert seen.numbers("hits", "misses", "second_level_errors") == (0, 3, 3 * len(names))


class Overtaken(Remembering):
    """While it is asked, somebody else stores what is right; it answers something else."""

    def __init__(self, storage: PrefixStorage, text: str, ids: list[int]) -> None:
        super().__init__()
        self.meanwhile = PrefixCache(Bytes(), S2, "n", storage)
        self.text, self.ids = text, ids

    def lookup(self, keys: Sequence[bytes], /) -> tuple[int, bytes] | None:
        self.meanwhile.encode(self.text)
        return 0, array("I", self.ids).tobytes()


@pytest.mark.parametrize("count", [1, 5000])
def test_an_answer_that_is_not_what_the_store_has_is_not_mixed_with_it(count: int) -> None:
    storage = PrefixStorage()
    text = "<s>" + "one" * 300 + "</s>two"
    cache = PrefixCache(Bytes(), S2, "n", storage, second_level=Overtaken(storage, text, [7] * count))
    assert cache.encode(text) == [7] * count + list(b"two")
    assert cache.encode(text) == list(text.encode())


class Picky(Bytes):
    """Raises for some texts, as backends do that take no special tokens, or no empty text."""

    def __init__(self, refused: str) -> None:
        super().__init__()
        self.refused = refused

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        if text == self.refused or (self.refused and self.refused in text):
            raise ValueError("not this one")
        return super().encode(text)


def test_a_backend_that_raises_when_it_is_tried_is_not_cut_there() -> None:
    assert PrefixCache(Picky("</s>"), S2).explain()["boundary_tokens"] == ["<s>"]
    with pytest.warns(ToktierWarning, match="raised ValueError for an empty text"):
        cache = PrefixCache(Picky(""), S2)
    assert cache.encode("<s>x") == list(b"<s>x")


class StripsBehindOne(Bytes):
    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return super().encode(re.sub("(<100>) +", r"\1", text))


def test_of_many_tokens_each_is_tried_or_is_no_boundary() -> None:
    tokens = [f"<{i}>" for i in range(1030)]
    told = PrefixCache(StripsBehindOne(), tokens).explain()
    assert told["boundary_tokens"] == [token for token in tokens[:1024] if token != "<100>"]
    assert "cut behind it" in told["dropped_tokens"]["<100>"]
    assert "1024" in told["dropped_tokens"]["<1024>"]
