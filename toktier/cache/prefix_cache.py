"""PrefixCache: a backend, and the ids of the prefixes of texts that it has encoded before (docs/prefix-cache.md).

Prefixes end right behind special tokens, where a text may be cut (`toktier.cache.boundaries`); the longest known one
gives its ids and the rest is encoded. A key is a SHA-256 over namespace, add_special_tokens and prefix: texts are not
kept, and equal keys are equal prefixes. The ids are always those of the backend alone: what cannot be cut is not, and
where the special tokens are not in the ids as they are in the text the whole is encoded.

Scan, digests, entries and the putting together are native (native/cache). Not here: storage, a second level.
"""

from __future__ import annotations

import contextlib
import inspect
import secrets
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from toktier._native import EncoderBase, Encoding, EncodingBatch, PrefixIndex, PrefixLookup
from toktier.cache import probe
from toktier.cache.boundaries import Boundaries, choose
from toktier.cache.facts import Facts, facts_of
from toktier.cache.level import SecondLevel
from toktier.cache.storage import PrefixStorage
from toktier.errors import ConfigInvalid, ToktierWarning, UnsupportedConfig

_OFFERED = 8
"""Entries of one text that a second level is told of: so many of the shortest (what many texts begin with) and of the
longest (what the next turn begins with). Each is a copy of a whole prefix."""
_COUNTERS = (
    *("hits", "misses", "cached_tokens", "uncached_tokens", "bypassed"),
    *("second_level_hits", "second_level_errors", "unplaced"),
)
_NOTHING = {"entries": 0, "bytes": 0, "resident_bytes": 0}


class PrefixCache:
    """Encodes as its backend does. Thread-safe as far as the backend is; attributes not named here are the backend's.

    `on_hit` and `on_miss` are called without arguments once for each text that was looked up, `on_tokens` with the
    numbers of cached and uncached ids once for each that was encoded, looked up or not; to set one replaces it, None
    takes it away. What they raise goes to the caller of `encode`.
    """

    def __init__(
        self,
        inner: Any,
        special_tokens: Iterable[str] | None = None,
        namespace: str | None = None,
        storage: PrefixStorage | None = None,
        capacity: int | None = None,
        *,
        extend: bool = True,
        second_level: SecondLevel | None = None,
        on_hit: Callable[[], object] | None = None,
        on_miss: Callable[[], object] | None = None,
        on_tokens: Callable[[int, int], object] | None = None,
        warn: bool = True,
    ) -> None:
        """`inner`: a Tokenizer, an object of the reference, or whatever has `encode(text, add_special_tokens=...)`
        that gives ids, an object with `ids`, or a buffer of uint32.

        `special_tokens`: behind which prefixes may end; None: all that `inner` has. `namespace`: equal ones must mean
        equal ids of equal texts; None: the fingerprint of a Tokenizer, else one that nobody else has. `storage`: shared
        with other wrappers; None: one of its own, of `capacity` bytes (64 MiB). `extend`: what a hit did not know is
        stored up to its last boundary. `second_level`: None: that of the storage.

        Warns once (`warn`) where the tokens or the backend allow no cut, and then hands everything on. A backend of
        which nothing is known is given a few short texts first. Raises ConfigInvalid.
        """
        if storage is not None and capacity is not None:
            raise ConfigInvalid(
                "both storage and capacity were given: a storage has its own capacity",
                details={"argument": "capacity"},
                remedy="leave one out",
            )
        for argument, value, kind in (("storage", storage, PrefixStorage), ("namespace", namespace, str)):
            if value is not None and not isinstance(value, kind):
                raise ConfigInvalid(
                    f"{argument} is of type {type(value).__name__}: expected {kind.__name__}",
                    details={"argument": argument},
                    remedy=f"leave {argument} out",
                )
        if storage is None:
            storage = PrefixStorage() if capacity is None else PrefixStorage(capacity)
        self.inner, self.storage, self.extend = inner, storage, extend
        self.second_level = storage.second_level if second_level is None else second_level
        self.on_hit, self.on_miss, self.on_tokens = on_hit, on_miss, on_tokens
        self._takes_flag = _takes_flag(inner)
        facts = facts_of(inner)
        self._is_as_loaded = None if facts is None else facts.is_as_loaded
        self._served_by = None if facts is None else facts.served_by
        self._boundaries = self._choose(special_tokens, facts)
        own = None if facts is None else facts.namespace
        self.given_namespace = namespace
        self.namespace = namespace if namespace is not None else own or secrets.token_hex(16)
        self._engine: EncoderBase | None = None
        self._index: PrefixIndex | None = None
        if self._boundaries.disabled is not None:
            if warn:
                warnings.warn(f"the prefix cache is off: {self._boundaries.disabled}", ToktierWarning, stacklevel=2)
            return
        if facts is not None and isinstance(inner, EncoderBase) and inner.program is not None:
            self._engine = inner
        tokens = self._boundaries.tokens
        known = {} if facts is None or self._engine is None else {token.content: token.id for token in facts.added}
        self._index = PrefixIndex(
            storage.native,
            [token.encode("utf-8", "surrogatepass") for token in tokens],
            self.namespace.encode("utf-8", "surrogatepass"),
            [known[token] for token in tokens] if known else [],
        )

    def _choose(self, special_tokens: Iterable[str] | None, facts: Facts | None) -> Boundaries:
        if special_tokens is not None:
            # The characters of one str would be boundaries that nobody meant.
            tokens = [special_tokens] if isinstance(special_tokens, (str, bytes)) else list(special_tokens)
            if isinstance(special_tokens, str) or not all(isinstance(token, str) for token in tokens):
                raise ConfigInvalid(
                    "special_tokens is not a list of str",
                    details={"argument": "special_tokens"},
                    remedy='give several, for example ["<|im_start|>", "<|im_end|>"], or leave special_tokens out',
                )
        elif facts is not None:
            tokens = [token.content for token in facts.added if token.special]
        else:
            tokens = list(getattr(self.inner, "special_tokens", ()))
        if getattr(self.inner, "add_special_tokens", False) is True:
            return Boundaries(disabled="the backend adds special tokens to every text, so that parts have too many")
        chosen = choose(tokens, facts)
        if chosen.disabled is not None or (facts is not None and not facts.of_another):
            return chosen

        def ids_of(text: str) -> list[int]:
            return list(_ids(self._call(text)))

        against = probe.against_cuts(ids_of)
        if against is not None:
            return Boundaries(disabled=against)
        return chosen.without(probe.unsafe(chosen.tokens, ids_of))

    # encode

    def encode(self, text: Any, add_special_tokens: bool = False, **more: Any) -> Encoding:
        """The ids of `text`, as the backend gives them. `more`: arguments of the backend; with them, with
        add_special_tokens=True over another backend than a Tokenizer, and where the cache is off, the backend alone
        encodes. Offsets and tokens of the result are there where the backend is a Tokenizer on its own engine."""
        if self._index is None:
            return _encoding(self._call(text, add_special_tokens, **more), self._name)
        if more or (add_special_tokens and self._engine is None) or not self._is_cacheable_now():
            self._index.bypass()
            made = _encoding(self._call(text, add_special_tokens, **more), self._name)
            if self.on_tokens is not None:
                self.on_tokens(0, len(made))
            return made
        lookup = self._index.find(text, add_special_tokens)
        second = self.second_level
        if second is not None:
            self._ask(second, lookup)
        hit = lookup.settle()
        observer = self.on_hit if hit else self.on_miss
        if observer is not None:
            observer()
        if self._engine is not None:
            made = lookup.encode_by(self._engine, self.extend)
        else:
            made = self._encode_parts(text, lookup, hit)
        if second is not None:
            self._tell(second, lookup)
        if self.on_tokens is not None:
            self.on_tokens(lookup.tokens_known, lookup.tokens_new)
        return made

    def _encode_parts(self, text: Any, lookup: PrefixLookup, hit: bool) -> Encoding:
        """A miss keeps each prefix as it is complete, a hit the last one after all went well. Ids of two engines are
        not put together."""
        parts = lookup.parts(self.extend)
        last = len(parts) - 1
        for i, part in enumerate(parts):
            made = self._call(part)
            if self._served_by is not None and made.backend != self._served_by:
                return lookup.instead(self._call(text))
            lookup.take(_ids(made))
            if not hit and i < last:
                lookup.keep(i)
        if hit and last > 0:
            lookup.keep(0)
        return lookup.encoding(self._name)

    def _ask(self, second: SecondLevel, lookup: PrefixLookup) -> None:
        keys = lookup.open_keys()
        if not keys:
            return
        try:
            found = second.lookup(keys)
            if found is not None and 0 <= found[0] < len(keys):
                lookup.adopt(*found)
        except Exception as error:
            self._failed(second, error)

    def _tell(self, second: SecondLevel, lookup: PrefixLookup) -> None:
        try:
            for key, ids in lookup.stored(_OFFERED):
                second.store(key, ids)
        except Exception as error:
            self._failed(second, error)

    def _failed(self, second: SecondLevel, error: Exception) -> None:
        """A level that breaks its promise never to raise is one that knows nothing. What the error says stays out of
        the warning: it may quote an address with credentials."""
        assert self._index is not None
        self._index.second_level_failed()
        if self._index.second_level_errors == 1:
            with contextlib.suppress(ToktierWarning):  # where warnings are errors
                warnings.warn(
                    f"the second level of the prefix cache, {type(second).__name__}, raised {type(error).__name__}: "
                    "texts are encoded as if it knew nothing",
                    ToktierWarning,
                    stacklevel=4,
                )

    def _is_cacheable_now(self) -> bool:
        return self._is_as_loaded is None or self._is_as_loaded()

    def _call(self, text: Any, add_special_tokens: bool = False, **more: Any) -> Any:
        if self._takes_flag:
            return self.inner.encode(text, add_special_tokens=add_special_tokens, **more)
        return self.inner.encode(text, **more)

    @property
    def _name(self) -> str:
        """What made the ids, for `Encoding.backend`."""
        return self._served_by or getattr(self.inner, "backend_name", None) or type(self.inner).__name__

    def encode_batch(self, texts: Iterable[Any], add_special_tokens: bool = False, **more: Any) -> Any:
        """`encode` of each, in order; where the cache is off, the batch call of the backend."""
        if self._index is None and hasattr(self.inner, "encode_batch"):
            if self._takes_flag:
                more["add_special_tokens"] = add_special_tokens
            return self.inner.encode_batch(texts, **more)
        if isinstance(texts, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"expected several texts, not one {type(texts).__name__}")
        return EncodingBatch.from_encodings([self.encode(text, add_special_tokens, **more) for text in texts])

    def count(self, text: Any, add_special_tokens: bool = False) -> int:
        """`len(encode(text))`."""
        return len(self.encode(text, add_special_tokens))

    def encode_segments(self, segments: Iterable[tuple[Any, bool]]) -> Any:
        """As the backend does: nothing is looked up or stored. UnsupportedConfig where it has no such call: to join the
        texts would let what a user wrote become control tokens."""
        call = getattr(self.inner, "encode_segments", None)
        if call is None:
            raise UnsupportedConfig(
                f"{type(self.inner).__name__} cannot encode segments",
                details={"backend": type(self.inner).__name__},
                remedy="use a tokenizer of toktier, or encode the parts with plain text escaped by the caller",
            )
        result = call(segments)
        if self._index is not None and self.on_tokens is not None:
            self.on_tokens(0, len(_ids(result)))
        return result

    def decode(self, *args: Any, **kwargs: Any) -> Any:
        """The backend's."""
        return self.inner.decode(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "inner" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.inner, name)

    # what happened

    @property
    def enabled(self) -> bool:
        return self._index is not None

    def stats(self) -> dict[str, Any]:
        """Of this wrapper: hits, misses (each text that is looked up is one of them), hit_rate, cached_tokens,
        uncached_tokens, bypassed (texts that were not looked up), second_level_hits, second_level_errors (calls of
        one that raised), unplaced (texts that were encoded whole after all: their ids did not show the special tokens
        where the text has them, or another engine stood in for a part); of its namespace: entries, bytes (4 for each id
        of every entry's whole prefix), resident_bytes (held); `disabled`: why it is off, else None. Off: all are 0."""
        counted = {name: 0 if self._index is None else getattr(self._index, name) for name in _COUNTERS}
        lookups = counted["hits"] + counted["misses"]
        off = self._index is None
        return {
            **counted,
            "hit_rate": counted["hits"] / lookups if lookups else 0.0,
            **(_NOTHING if off else self.storage.native.sizes(self.namespace.encode("utf-8", "surrogatepass"))),
            "disabled": self._boundaries.disabled,
        }

    def explain(self) -> dict[str, Any]:
        """Whether it is on, behind which tokens prefixes end, which tokens are left out and why, `stats`, and the
        storage's."""
        return {
            "enabled": self.enabled,
            "disabled": self._boundaries.disabled,
            "boundary_tokens": list(self._boundaries.tokens),
            "dropped_tokens": dict(self._boundaries.dropped),
            "extend": self.extend,
            "stats": self.stats(),
            "storage": self.storage.stats(),
        }


def _takes_flag(inner: Any) -> bool:
    """Whether encode() of a backend takes add_special_tokens. A signature that cannot be read, of a compiled type, is
    taken to have it."""
    try:
        parameters = inspect.signature(inner.encode).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(p.name == "add_special_tokens" or p.kind is p.VAR_KEYWORD for p in parameters)


def _ids(result: Any) -> Any:
    """Ids of what a backend gave, as a buffer of uint32 or a sequence of int."""
    return result if isinstance(result, (Encoding, list)) else getattr(result, "ids", result)


def _encoding(result: Any, backend: str) -> Encoding:
    if isinstance(result, Encoding):
        return result
    offsets, tokens = getattr(result, "offsets", None), getattr(result, "tokens", None)
    return Encoding.from_ids(_ids(result), offsets=offsets, tokens=tokens, backend=backend)
