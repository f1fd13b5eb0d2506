"""Tokenizer: one tokenizer.json, ready to encode and decode, by the engine that the plan chose.

`encode`, `encode_batch` and `count` are the native type's own methods; they come here (`_encode_routed` and its
siblings) only when the reference or a third-party engine serves, or an argument needs more than the engine. Not here:
choosing the engine (`toktier.routing`), finding and compiling the file (`toktier.api`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toktier._native import EncoderBase, Encoding, text_of, text_weight
from toktier.backends.text import segment_pairs
from toktier.cache.facts import facts_of_reference
from toktier.decoding import Decoding
from toktier.errors import ConfigInvalid, SessionStateMismatch, UnsupportedConfig
from toktier.routing import explain as explained
from toktier.routing.counters import Counters
from toktier.routing.vocabulary import CERTIFIED_REFERENCE_VERSIONS, BackendId, Reason
from toktier.serving.async_calls import AsyncCalls
from toktier.sessions.turns import Turns
from toktier.text_parts import text_parts

if TYPE_CHECKING:
    from toktier._native import EncodingBatch, GpuIds
    from toktier.backends.fast_cpu import FastCpuBackend
    from toktier.backends.hf import HfBackend
    from toktier.backends.text import Text
    from toktier.cache.facts import Facts
    from toktier.cache.prefix_cache import PrefixCache
    from toktier.cache.setting import PrefixCacheSetting
    from toktier.routing.gpu_route import GpuRoute
    from toktier.routing.plan import Plan
    from toktier.routing.third_party_route import ThirdPartyRoute
    from toktier.serving.encoder import Traits
    from toktier.sessions.live import Live
    from toktier.sessions.open_sessions import OpenSessions
    from toktier.sessions.protocol import Store
    from toktier.sessions.session import Session

LOOKUPS = ("auto", "off")
CACHED_FROM = 1024  # bytes of text from which on the prefix cache is asked: to ask for less costs more than it spares
LOOKUP_FROM = 4096  # bytes of text from which on a store is asked: shorter ones are in none to be found


class Tokenizer(EncoderBase, Decoding, AsyncCalls):
    """Made by `toktier.load` and `toktier.from_file`. Any number of threads may use one at once.

    IDs equal `tokenizers.Tokenizer.encode(text, add_special_tokens=...)` of the certified versions.
    """

    def __init__(
        self,
        plan: Plan,
        native: FastCpuBackend | None,
        reference: HfBackend,
        *,
        program: dict[str, Any] | None,
        resolution: dict[str, Any],
        recipe: tuple[Callable[..., Tokenizer], tuple[Any, ...]],
        store: Store | None = None,
        lookup: str = "auto",
        gpu: GpuRoute | None = None,
        third_party: ThirdPartyRoute | None = None,
        prefix_cache: PrefixCacheSetting | None = None,
        quiet: bool = False,
    ) -> None:
        """`native`: None when the file did not compile. `program` and `resolution`: facts for `explain`. `recipe`: a
        function and arguments that open the same file again, for pickles. `store`: of named sessions, and of what
        look-ups find; `lookup`: whether encode() asks it. `gpu`: the way of long texts, where the plan has one;
        `third_party`: that of all texts, where the plan has such an engine serve. `prefix_cache`: what was asked for;
        `quiet`: without a warning where it cannot be."""
        serving_native = plan.serves in (BackendId.FAST_CPU, BackendId.GPU) and native is not None
        looks_up = store is not None and lookup == "auto"
        uncached = None if prefix_cache is None else prefix_cache.off_because(serving_native, gpu is not None)
        caches = prefix_cache is not None and uncached is None
        from_bytes = [LOOKUP_FROM] * looks_up + ([] if gpu is None else [gpu.min_bytes]) + [CACHED_FROM] * caches
        super().__init__(
            native.program if serving_native and native is not None else None,
            min(from_bytes, default=0),
            0 if gpu is None else gpu.min_bytes,
        )
        self._loaded_plan, self._gpu, self._third_party = plan, gpu, third_party
        self._native, self._reference = native, reference
        self._facts = native or reference
        self._names = reference if native is None or not native.names_ids else native
        self._serving = third_party or reference
        if serving_native and native is not None:
            self._serving = native
        self._program, self._resolution, self._recipe = program, resolution, recipe
        self._store, self._lookup = store, lookup
        self._open_sessions: OpenSessions | None = None
        self._guard = Turns()
        self._counters = Counters()
        self._known_ids = set()
        self._found_in_store = 0  # texts of which a look-up knew the beginning
        self._gpu_calls_seen = 0  # texts of the CPU engine when the GPU last answered
        gate = plan.involuntary
        self._fallback: Reason | None = None if gate is None else gate.reason
        self._uncached_because = uncached
        self._prefix_cache: PrefixCache | None = None
        if prefix_cache is not None and uncached is None:
            self._prefix_cache = prefix_cache.over(self if serving_native else _Parts(self), warn=not quiet)
        on = self._prefix_cache is not None and self._prefix_cache.enabled
        self._caching = self._prefix_cache if on else None  # one that is off would only call back

    @property
    def _plan(self) -> Plan:
        """The plan that holds now: opening a GPU, and losing it, makes another."""
        return self._loaded_plan if self._gpu is None else self._gpu.plan

    # encode: what the native type hands over

    def _encode_routed(
        self, text: Text, add_special_tokens: bool, session: str | Session | None, lookup: str | None, plain: bool
    ) -> Encoding:
        if lookup is not None and lookup not in LOOKUPS:
            raise ConfigInvalid(
                f"lookup is {lookup!r}: expected one of {', '.join(LOOKUPS)}",
                details={"argument": "lookup"},
                remedy="leave lookup out",
            )
        if session is not None:
            return self._encode_in_session(text, add_special_tokens, session, plain)
        if self._serving is self._native:
            # What users wrote (plain) is another stream of ids than the one that stores hold.
            if self._store is not None and (lookup or self._lookup) == "auto" and not plain:
                return self._encode_with_store(text, add_special_tokens, self._store)
            if self._caching is not None and lookup != "off" and not plain:
                return self._caching.encode(text, add_special_tokens)
            if self._gpu is not None and text_weight(text) >= self._gpu.min_bytes:
                encoding = self._gpu.encode(text, add_special_tokens, plain)
                if encoding is not None:
                    self._gpu_calls_seen = self.native_calls[0]
                    return encoding
            return self._encode_here(text, add_special_tokens, plain=plain)
        caching = self._caching if lookup != "off" and not plain else None
        if caching is not None and self._third_party is not None:
            return self._third_party.encode(text, add_special_tokens, plain, self._counters, caching)
        if caching is not None:
            encoding = caching.encode(text, add_special_tokens)
            self._counters.encoded(BackendId.HF, 1, self._fallback)
            return encoding
        return self._encode_elsewhere(text, add_special_tokens, plain)

    def _encode_with_store(self, text: Text, add_special_tokens: bool, store: Store) -> Encoding:
        from toktier.sessions import prefixes

        utf8 = (text if isinstance(text, str) else text_of(text)).encode("utf-8", "surrogatepass")
        if len(utf8) < LOOKUP_FROM or self._serving.changes_length:
            caching = self._caching
            return (self._encode_here if caching is None else caching.encode)(text, add_special_tokens)
        return prefixes.encode(text, utf8, add_special_tokens, self, self._new_live, self.ids_identity, store)

    def _encode_behind(
        self, text: Text, utf8: bytes, ids: bytes, end: int, add_special_tokens: bool, /
    ) -> Encoding | None:
        found = super()._encode_behind(text, utf8, ids, end, add_special_tokens)
        if found is not None:
            with self._guard.lock:
                self._found_in_store += 1
        return found

    def _encode_elsewhere(self, text: Text, add_special_tokens: bool, plain: bool) -> Encoding:
        """By what serves in place of the native engine."""
        if self._third_party is not None:
            return self._third_party.encode(text, add_special_tokens, plain, self._counters)
        encoding = self._reference.encode(text, add_special_tokens, plain)
        self._counters.encoded(BackendId.HF, 1, self._fallback)
        return encoding

    def _encode_batch_routed(
        self, texts: Iterable[Text], add_special_tokens: bool, workers: int | None, plain: bool
    ) -> EncodingBatch:
        if self._gpu is not None:
            given = texts if isinstance(texts, tuple) else tuple(texts)
            encodings = self._gpu.encode_batch(given, add_special_tokens, plain)
            if encodings is not None:
                self._gpu_calls_seen = self.native_calls[0]
                return encodings
            return self._encode_batch_here(given, add_special_tokens, workers=workers, plain=plain)
        if self._third_party is not None:
            return self._third_party.encode_batch(texts, add_special_tokens, plain, workers, self._counters)
        batch = self._reference.encode_batch(texts, add_special_tokens, plain, workers)
        self._counters.encoded(BackendId.HF, len(batch), self._fallback)
        return batch

    def _count_routed(self, text: Text, add_special_tokens: bool, plain: bool) -> int:
        if self._gpu is not None:
            encoding = self._gpu.encode(text, add_special_tokens, plain)
            if encoding is None:
                return self._count_here(text, add_special_tokens, plain=plain)
            self._gpu_calls_seen = self.native_calls[0]
            return len(encoding)
        if self._third_party is not None:
            return len(self._third_party.encode(text, add_special_tokens, plain, self._counters))
        count = self._reference.count(text, add_special_tokens, plain)
        self._counters.encoded(BackendId.HF, 1, self._fallback)
        return count

    def _count_batch_routed(
        self, texts: Iterable[Text], add_special_tokens: bool, workers: int | None, plain: bool
    ) -> list[int]:
        if self._gpu is not None:
            given = texts if isinstance(texts, tuple) else tuple(texts)
            batch = self._gpu.encode_batch(given, add_special_tokens, plain)
            if batch is None:
                return self._count_batch_here(given, add_special_tokens, workers=workers, plain=plain)
            self._gpu_calls_seen = self.native_calls[0]
            splits = batch.row_splits
            return [splits[i + 1] - splits[i] for i in range(len(batch))]
        return [len(row) for row in self._encode_batch_routed(texts, add_special_tokens, workers, plain)]

    def encode_on_device(
        self, texts: Iterable[Text], add_special_tokens: bool = False, *, plain: bool = False, stream: Any = None
    ) -> GpuIds:
        """IDs of many texts in memory of the GPU, as int32, for whatever takes DLPack or `__cuda_array_interface__`;
        `row_splits`, on the host, says where each text begins.

        `stream`: of the caller, a handle or an object with `__cuda_stream__`: what is queued in it from then on finds
        the ids. None: they are complete when this returns. Raises BackendUnavailable where no GPU serves,
        BackendExecutionFault where it fails, InvalidText, TypeError and ValueError for what is no stream.
        """
        from toktier.routing.gpu_route import no_device

        if self._gpu is None:
            raise no_device(self._plan)
        ids = self._gpu.encode_on_device(tuple(texts), add_special_tokens, plain, stream)
        self._gpu_calls_seen = self.native_calls[0]
        return ids

    def encode_segments(self, segments: Iterable[tuple[Text, bool]]) -> Encoding:
        """IDs of (text, allow_special) pairs, each encoded alone, one after the other.

        Where `allow_special` is False (what a user wrote), special added tokens are ordinary text; where it is True
        (what a template wrote), they count. No token spans a border, as when the parts were encoded one by one; no
        template is added. Offsets are code points of all texts joined. A third-party engine gives its own answer,
        without offsets (docs/backends.md).

        Raises TypeError for what is no such pair (`allow_special` is a bool, not what is true); UnsupportedConfig when
        the file stores truncation or padding, which have no meaning for parts, and of an engine that has no segments.
        """
        if self._serving.changes_length:
            raise UnsupportedConfig(
                "the tokenizer.json stores truncation or padding, which parts of a text cannot have",
                details={"artifact_sha256": self.artifact_sha256},
                remedy="encode whole texts, or remove truncation and padding from the file",
            )
        if self._third_party is not None:
            return self._third_party.encode_segments(segments, self._counters)
        ids = array("I")
        offsets: list[tuple[int, int]] = []
        tokens: list[str] = []
        base = 0
        for text, allow_special in segment_pairs(segments):
            part = self.encode(text, plain=not allow_special, offsets=True)
            ids.extend(part)
            offsets.extend((base + start, base + end) for start, end in part.offsets)
            tokens.extend(part.tokens)
            base += len(text_of(text))
        return Encoding.from_ids(ids, offsets=offsets, tokens=tokens, backend=self._serving.id.value)

    def encode_stream(
        self,
        blocks: Iterable[bytes],
        add_special_tokens: bool = False,
        *,
        on_hold: Callable[[str], None] | None = None,
    ) -> Iterator[Encoding]:
        """IDs of one text that comes in blocks of bytes of UTF-8: encodings that, one after the other, are `encode` of
        the whole. Offsets count from the start of their part.

        Memory is bounded by the longest stretch without a place to cut. The whole text is held where the reference
        serves, where the file stores truncation or padding, and where a normalizer writes something before every part;
        `on_hold` is called once, with the reason, from 16 MiB held on. Raises InvalidText with the byte of the text.
        """
        native = self._native if self._serving is self._native else None
        if native is None:
            by = "the reference" if self._third_party is None else self._third_party.id.value
            program, reason = None, f"{by} serves, which takes whole texts"
        elif native.changes_length:
            program, reason = None, "the tokenizer.json stores truncation or padding, which are of whole texts"
        else:
            program, reason = native.program, ""
        parts = text_parts(blocks, program, reason, on_hold or (lambda _: None))
        first = next(parts)
        second = next(parts, None)
        if second is None or native is None:
            yield self.encode(first, add_special_tokens)
            return
        before, after = native.template if add_special_tokens else ((), ())
        if before:
            yield Encoding.from_ids(before, backend=native.id.value)
        yield self.encode(first)
        yield self.encode(second)
        for part in parts:
            yield self.encode(part)
        if after:
            yield Encoding.from_ids(after, backend=native.id.value)

    # sessions

    def session(self, name: str | None = None, *, keep_text: bool = False) -> Session:
        """A text that grows: only what is new is encoded. The same name gives the same session.

        With a store (`store=` of load and its like) a named session is in it after every change, and goes on in another
        process; `keep_text` (of the moment it is made) keeps its text there too, compressed, so that edits of old text
        need no text presented. Without a store it is in memory. None: in memory, of nobody else.

        Raises UnsupportedConfig where the file stores truncation or padding, SessionStateMismatch where the store has
        the name for another tokenizer, StoreCorrupt, and ConfigInvalid for keep_text without a store.
        """
        return self._sessions.get(name, keep_text)

    @property
    def _sessions(self) -> OpenSessions:
        if self._open_sessions is None:
            from toktier.sessions.open_sessions import OpenSessions

            if self._serving.changes_length:
                raise UnsupportedConfig(
                    "the tokenizer.json stores truncation or padding, which a text that grows cannot have",
                    details={"artifact_sha256": self.artifact_sha256},
                    remedy="encode whole texts, or remove truncation and padding from the file",
                )
            with self._guard.lock:
                if self._open_sessions is None:
                    self._open_sessions = OpenSessions(self._new_live, self.ids_identity, self._store)
        return self._open_sessions

    def _new_live(self) -> Live:
        from toktier.sessions.live import NativeLive, ReferenceLive

        if self._serving is self._native:
            return NativeLive(self)
        third_party = self._third_party
        if third_party is not None:
            return ReferenceLive(
                lambda text, add: third_party.encode_alone(text, add, self._counters), third_party.id.value
            )
        return ReferenceLive(lambda text, add: self._encode_elsewhere(text, add, False), self._serving.id.value)

    def _encode_in_session(self, text: Text, add_special_tokens: bool, session: str | Session, plain: bool) -> Encoding:
        if plain:
            raise UnsupportedConfig(
                "plain=True was given with a session, whose special added tokens always count",
                details={"argument": "plain"},
                remedy="leave plain or session out",
            )
        if isinstance(session, str):
            return self._sessions.present(session, text, add_special_tokens)
        from toktier.sessions.session import Session

        if not isinstance(session, Session):
            raise TypeError(f"session must be a name or a Session, not {type(session).__name__}")
        if session.fingerprint != self.ids_identity:
            raise SessionStateMismatch(
                "the session is of a tokenizer with another fingerprint",
                details={"expected": self.ids_identity, "found": session.fingerprint},
                remedy="use the tokenizer that made it",
            )
        return session.present(text, add_special_tokens)

    # what a batcher asks

    @property
    def _batch_traits(self) -> Traits:
        from toktier.serving.encoder import Traits

        native = self._serving is self._native
        asks_store = self._store is not None and self._lookup == "auto" and native
        asks_second_level = self._caching is not None and self._caching.second_level is not None
        return Traits(
            apart=self._serving.changes_length,
            inline=native,
            gpu=self._gpu is not None,
            asks_store=asks_store or asks_second_level,
            store_from=CACHED_FROM if asks_second_level else LOOKUP_FROM,
            cached=self._caching is not None,
        )

    @property
    def _gpu_from(self) -> int | None:
        gpu = self._gpu
        return None if gpu is None or gpu.plan.serves is not BackendId.GPU else gpu.min_bytes

    # identity

    @property
    def artifact_sha256(self) -> str:
        """SHA-256 (hex) of the tokenizer.json."""
        return self._plan.program.artifact_sha256

    @property
    def fingerprint(self) -> str | None:
        """Digest (hex) of all that can change ids, offsets or decoded text; None for a file beyond the compiler."""
        return self._plan.program.fingerprint

    def prefix_cache_facts(self) -> Facts:
        """What decides where a prefix cache may cut the texts of this tokenizer: `toktier.cache.PrefixCache` asks.

        Of a certified version of the reference, and a file within the compiler, all engines here share a namespace;
        what else the reference serves is shared by its version alone."""
        namespace = f"toktier:{self.ids_identity}"
        version = self._plan.facts.reference_version
        if self._serving is self._reference and not (self.fingerprint and version in CERTIFIED_REFERENCE_VERSIONS):
            namespace = f"{namespace} tokenizers {version}"
        if self._native is not None and self._serving is not self._reference:
            facts = self._native.prefix_cache_facts(namespace)
        else:
            facts = facts_of_reference(self._reference.load(), namespace)
        return facts if self._third_party is None else replace(facts, served_by=self._third_party.id.value)

    @property
    def ids_identity(self) -> str:
        """What sessions and caches of ids go by: tokenizers with the same one give the same ids. The fingerprint, or
        the digest of a file beyond the compiler; of a third-party engine its name and version with that digest."""
        if self._third_party is not None:
            return self._third_party.identity
        return self.fingerprint or f"sha256:{self.artifact_sha256}"

    def explain(self, summary: bool = False) -> dict[str, Any]:
        """What serves and why, and what happened since loading: `docs/routing.md` names the members."""
        calls = self._calls()
        if summary:
            return explained.summarise(self._plan, self._counters, calls, self._program)
        report = explained.report(
            self._plan,
            self._counters,
            calls,
            self._program,
            self._resolution,
            self._sessions_facts(),
            {"loaded": False} if self._gpu is None else self._gpu.facts(),
        )
        return {**report, "prefix_cache": self._prefix_cache_report()}

    def _prefix_cache_report(self) -> dict[str, Any]:
        """What `PrefixCache.explain` says of the one of this tokenizer, or why there is none."""
        if self._prefix_cache is not None:
            return self._prefix_cache.explain()
        return {"enabled": False, "disabled": self._uncached_because or "not asked for"}

    def _calls(self) -> explained.Calls:
        texts, size = self.native_calls
        gpu = self._gpu
        return explained.Calls(
            texts,
            size,
            self.native_session_calls + self._found_in_store,
            self.native_uncut,
            0 if gpu is None else gpu.texts,
            {} if gpu is None else gpu.fallen,
            gpu is not None and gpu.texts > 0 and texts == self._gpu_calls_seen,
            None if self._third_party is None else self._third_party.last,
            None if self._third_party is None else self._third_party.last_decoded,
        )

    def _sessions_facts(self) -> dict[str, Any]:
        """Of the store: whether there is one, and what this process looked up in it."""
        counted = None if self._store is None else self._store.counters
        return {
            "store": self._store is not None,
            "lookup": self._lookup,
            "lookups": None if counted is None else {slot: getattr(counted, slot) for slot in counted.__slots__},
        }

    def __repr__(self) -> str:
        return f"<toktier.Tokenizer {self.artifact_sha256[:12]} on {self._serving.id.value}, {self.vocab_size} tokens>"

    def __reduce__(self) -> tuple[Callable[..., Tokenizer], tuple[Any, ...]]:
        """A pickle holds the path and digest of the file, not its content: it opens where the same file lies."""
        return self._recipe

    def __copy__(self) -> Tokenizer:
        return self  # nothing of it changes

    def __deepcopy__(self, memo: dict[int, Any]) -> Tokenizer:
        return self


class _Parts:
    """What serves in place of the native engine as a prefix cache gives it parts of texts, which count as no texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        third_party = tokenizer._third_party
        self._facts = tokenizer.prefix_cache_facts()
        self._engine = tokenizer._reference if third_party is None else third_party.backend
        self.backend_name = self._engine.id.value

    def prefix_cache_facts(self) -> Facts:
        return self._facts

    def encode(self, text: Text, add_special_tokens: bool = False) -> Encoding:
        return self._engine.encode(text, add_special_tokens, False)
