"""Backends for tests of the prefix cache: bytes as ids, tokenizers of the reference with one odd property each, and
what a cache over them was seen to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from toktier.cache import PrefixCache

IM = ["<|im_start|>", "<|im_end|>"]
S2 = ["<s>", "</s>"]


def chatml(turns: int) -> list[str]:
    """A conversation as it stands before each answer, one text a turn."""
    text = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    texts = []
    for i in range(turns):
        text += f"<|im_start|>user\nQuestion {i} please answer it.<|im_end|>\n<|im_start|>assistant\n"
        texts.append(text)
        text += f"Detailed answer {i} follows here.<|im_end|>\n"
    return texts


class Bytes:
    """Ids are the bytes of the UTF-8, plus `offset`. `calls`: the texts it was given. `arm`: which calls from now on
    raise, counted from 1."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.calls: list[str] = []
        self.batches = 0
        self._fails: set[int] = set()

    def arm(self, *fails: int) -> None:
        self.calls.clear()
        self._fails = set(fails)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        self.calls.append(text)
        if len(self.calls) in self._fails:
            raise RuntimeError(f"call {len(self.calls)}")
        return [byte + self.offset for byte in text.encode()]

    def encode_batch(self, texts: Iterable[str], add_special_tokens: bool = False) -> list[list[int]]:
        self.batches += 1
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        return bytes(i - self.offset for i in ids).decode("utf-8", "replace")


class Remembering:
    """A second level in a dict; of `lies`, one answer each that no level should give."""

    def __init__(self, lies: Sequence[tuple[int, bytes]] = ()) -> None:
        self.values: dict[bytes, bytes] = {}
        self.lies = list(lies)
        self.asked: list[int] = []

    def lookup(self, keys: Sequence[bytes], /) -> tuple[int, bytes] | None:
        self.asked.append(len(keys))
        assert all(len(key) == 32 for key in keys)
        if self.lies:
            return self.lies.pop()
        return next(((i, self.values[key]) for i, key in enumerate(keys) if key in self.values), None)

    def store(self, key: bytes, ids: bytes, /) -> None:
        self.values[key] = ids

    def stats(self) -> dict[str, Any]:
        return {"values": len(self.values)}

    def close(self) -> None:
        self.values.clear()


class Watched:
    """A cache and everything that its observers were told."""

    def __init__(self, inner: Any, specials: Iterable[str] | None = None, **more: Any) -> None:
        self.usage: list[tuple[int, int]] = []
        self.events: list[str] = []
        self.cache = PrefixCache(
            inner,
            specials,
            on_hit=lambda: self.events.append("hit"),
            on_miss=lambda: self.events.append("miss"),
            on_tokens=lambda cached, uncached: self.usage.append((cached, uncached)),
            **more,
        )

    def numbers(self, *names: str) -> tuple[Any, ...]:
        stats = self.cache.stats()
        return tuple(stats[name] for name in names)


def word_level(vocabulary: dict[str, int], *added: AddedToken, **parts: Any) -> Tokenizer:
    """Of the reference; "[UNK]" is 0. Parts: normalizer, pre_tokenizer."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, **vocabulary}, unk_token="[UNK]"))
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.add_special_tokens(list(added))
    return tokenizer


def rstrip() -> tuple[Tokenizer, str]:
    token = AddedToken("<s>", rstrip=True, normalized=False)
    return word_level({"<s>": 1, "hello": 2, "world": 3}, token), "hello<s> world"


def single_word() -> tuple[Tokenizer, str]:
    token = AddedToken("<s>", single_word=True, normalized=False)
    return word_level({"<s>": 1, "hello": 2, "world": 3}, token), "hello<s>world"


def prepend_first() -> tuple[Tokenizer, str]:
    vocabulary = {"<s>": 1, "world": 3, "\u2581hello": 4, "\u2581world": 5}
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="first")
    return word_level(vocabulary, AddedToken("<s>", normalized=False), pre_tokenizer=metaspace), "hello<s>world"


def truncation() -> tuple[Tokenizer, str]:
    tokenizer = word_level({"<s>": 1, "hello": 2, "world": 3}, AddedToken("<s>", normalized=False))
    tokenizer.enable_truncation(2)
    return tokenizer, "hello<s>world"


def padding() -> tuple[Tokenizer, str]:
    tokenizer = word_level({"<s>": 1, "hello": 2, "world": 3}, AddedToken("<s>", normalized=False))
    tokenizer.enable_padding(length=5, pad_id=0, pad_token="[UNK]")
    return tokenizer, "hello<s>world"


UNSAFE: dict[str, tuple[Callable[[], tuple[Tokenizer, str]], list[int]]] = {
    "rstrip": (rstrip, [2, 1, 3]),
    "single_word": (single_word, [0]),
    "prepend_first": (prepend_first, [4, 1, 3]),
    "truncation": (truncation, [2, 1]),
    "padding": (padding, [2, 1, 3, 0, 0]),
}
"""Makers of a tokenizer that may not be cut and a text, and the ids of the reference."""


def _plain(**parts: Any) -> Tokenizer:
    vocabulary = {"<s>": 1, "hello": 2, "world": 3, "\u2581hello": 4, "\u2581world": 5, " world": 6}
    return word_level(vocabulary, AddedToken("<s>", normalized=False), **parts)


def _lstrip() -> Tokenizer:
    return word_level({"<s>": 1, "hello": 2, "world": 3}, AddedToken("<s>", lstrip=True, normalized=False))


def _lowercase() -> Tokenizer:
    token = AddedToken("<s>", normalized=True)
    return word_level({"<s>": 1, "hello": 2, "world": 3}, token, normalizer=normalizers.Lowercase())


LOOK_ALIKES: dict[str, Callable[[], Tokenizer]] = {
    "metaspace_always": lambda: _plain(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="always")),
    "metaspace_never": lambda: _plain(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="never")),
    "prepend": lambda: _plain(normalizer=normalizers.Prepend("\u2581")),
    "strip": lambda: _plain(normalizer=normalizers.Strip()),
    "lstrip": _lstrip,
    "normalized_lowercase": _lowercase,
}
"""Tokenizers that look like those above and may be cut."""
