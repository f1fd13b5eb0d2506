"""Types of the native module (native/bind). Private to the package: users meet these objects through `toktier`.

Texts are `str` or bytes-like objects of UTF-8. Ids are unsigned 32-bit. Buffers of 32-bit integers are little-endian,
contiguous; `bytes`, `array('I')` and memoryviews will do.
"""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, SupportsIndex, final, overload

_Buffer = Any  # anything with the buffer protocol
_Text = Any  # str, or anything with the buffer protocol and elements of one byte
_Offset = tuple[int, int]

class ProgramError(ValueError):
    """A program file that cannot be executed. `where` names the section, `what` the fault."""

    where: str
    what: str

def text_of(text: _Text, item: int = -1) -> str:
    """`text` as the engine takes it, as a str that is valid Unicode. Raises InvalidText with the position (code point
    of a str, byte of others) and the item of a batch; TypeError for what is no text."""

def text_weight(text: _Text) -> int:
    """About the bytes of UTF-8 of a text: what thresholds are compared with."""

def ids_of(ids: Iterable[int] | _Buffer) -> list[int]:
    """`ids` as the engine takes them. Raises InvalidToken (`details["index"]`) and TypeError."""

@final
class Program:
    """A program file, checked and ready, for any number of threads. Holds the buffer's export as long as it lives."""

    def __init__(self, buffer: _Buffer, level: str | None = None, cache_lines: int | None = None) -> None:
        """`buffer`: the whole file, not written to afterwards. ProgramError where a table does not hold.

        `level`: the dispatch level to run at, one of `build_facts()["dispatch_levels"]`; None: the best. ValueError for
        one that this CPU does not have. `cache_lines`: lines of each word cache, fixed; a power of two from 2 to
        131072. None: it grows as it needs. Ids depend on neither.
        """
    @property
    def level(self) -> str: ...
    @property
    def n_ids(self) -> int:
        """1 + the greatest id."""
    def split(self, text: _Text, two_pass: bool = False, windows: bool = False) -> tuple[list[int], list[bool]]:
        """Piece boundaries of one segment in bytes of its UTF-8, without both ends, and whether each piece is dropped.

        By the token automaton; by the two canonical automata (`two_pass`), which is its oracle; or as encoding splits,
        at the level of the program (`windows`), whose oracle both are. Without normalizer and added tokens.
        """
    def cuts(self, text: _Text, continued: bool = False) -> tuple[list[int], bytes]:
        """Where a text may be cut, in bytes of its UTF-8, without both ends, and the `layout.CutKind` of each: the ids
        of the parts are the ids of the whole, and so are the offsets before the post-processor. `continued`: where that
        holds when the first segment of every later part gets neither the prefix space nor what Prepend puts in front.

        More text on either side adds cuts and takes none away. InvalidText as `EncoderBase.encode`.
        """
    def joins(self, text: _Text) -> bytes:
        """For each character but the first, 1 where a merge may join it to the one before it, by the program's filter;
        0 is certain, 1 is not. Pieces, normalizer and added tokens are not looked at."""
    def decode(self, ids: Iterable[int] | _Buffer, skip_special_tokens: bool = True) -> str:
        """Text of ids. InvalidToken for what is no integer from 0 to 2**32 - 1; ids without a token are passed over."""
    def id_to_token(self, id: int) -> str | None: ...
    def token_to_id(self, token: str) -> int | None: ...
    def is_special(self, id: int) -> bool: ...
    def info(self) -> dict[str, int | bool]:
        """Sizes of the tables and the stored padding."""

@final
class Encoding:
    """Ids of one text. Immutable; a sequence of int and a read-only buffer of uint32 ("I") that views do not copy.

    `ids`, `offsets` and `tokens` give a new list each time: changing it changes nothing here. An encoding of the native
    engine keeps its text and program alive, from which `offsets` and `tokens` are computed when asked for. Pickles and
    copies carry ids, offsets and tokens, and neither text nor program.
    """

    __hash__: ClassVar[None]  # type: ignore[assignment]
    @staticmethod
    def from_ids(
        ids: Iterable[int] | _Buffer,
        offsets: Iterable[_Offset] | None = None,
        tokens: Iterable[str] | None = None,
        backend: str = "hf",
    ) -> Encoding:
        """An encoding that another engine made. Properties that it was not given raise UnsupportedConfig."""
    @property
    def ids(self) -> list[int]: ...
    @property
    def offsets(self) -> list[_Offset]:
        """(start, end) of each id in code points of the text."""
    @property
    def tokens(self) -> list[str]:
        """Token strings as the reference gives them: of an added token, the text that it matched."""
    @property
    def backend(self) -> str:
        """Which engine served: "fast_cpu", "gpu" where the device did a part of it, or what `from_ids` was told."""
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> int: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[int]: ...
    def __iter__(self) -> Iterator[int]: ...
    def __contains__(self, id: object, /) -> bool: ...
    def __eq__(self, other: object, /) -> bool:
        """Same ids; `other` may be a list or tuple of int."""
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class EncodingBatch:
    """Ids of many texts in one buffer; row i is `ids[row_splits[i]:row_splits[i + 1]]`."""

    @staticmethod
    def from_encodings(encodings: Iterable[Encoding], backend: str = ...) -> EncodingBatch:
        """A batch of encodings that were made one by one; `batch[i]` gives them back. `backend`: that of the first."""
    @property
    def ids(self) -> memoryview:
        """uint32 ("I"), read-only, no copy."""
    @property
    def row_splits(self) -> memoryview:
        """uint64 ("Q"), read-only, one more than there are texts."""
    @property
    def backend(self) -> str: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Encoding: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[Encoding]: ...
    def __iter__(self) -> Iterator[Encoding]: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

class EncoderBase:
    """The calls of `toktier.Tokenizer` that must not enter Python. One program, or none: the reference serves.

    Thread-safe; the GIL is released for texts of 2 KiB and more. Calls with a `session` or `lookup`, and every call
    without a program, go to the `_routed` methods, which a subclass overrides.
    """

    def __init__(self, program: Program | None, routed_from: int = 0, others_from: int = 0) -> None:
        """`routed_from`: bytes of text from which on `encode` goes to `_encode_routed`; `others_from`: the same of
        `encode_batch`, of all its texts, `count` and `count_batch`. 0: never for their size."""
    def _encode_here(
        self, text: _Text, add_special_tokens: bool = False, *, plain: bool = False, offsets: bool = False
    ) -> Encoding:
        """`encode` by the engine, whatever `routed_from` says."""
    def _encode_batch_here(
        self,
        texts: Iterable[_Text],
        add_special_tokens: bool = False,
        *,
        workers: int | None = None,
        plain: bool = False,
    ) -> EncodingBatch:
        """`encode_batch` by the engine, whatever `others_from` says; so the two below."""
    def _count_here(self, text: _Text, add_special_tokens: bool = False, *, plain: bool = False) -> int: ...
    def _count_batch_here(
        self,
        texts: Iterable[_Text],
        add_special_tokens: bool = False,
        *,
        workers: int | None = None,
        plain: bool = False,
    ) -> list[int]: ...
    def encode(
        self,
        text: _Text,
        add_special_tokens: bool = False,
        *,
        session: Any = None,
        lookup: str | None = None,
        plain: bool = False,
        offsets: bool = False,
    ) -> Encoding:
        """Ids of `text`. `plain`: special added tokens are ordinary text. `offsets`: compute them in the same pass.
        `session`, `lookup`: for the subclass. `help()` of the method says more.

        InvalidText for lone surrogates (`details["position"]`: code point) and malformed UTF-8 (byte);
        UnsupportedConfig where the reference cannot apply the stored truncation either.
        """
    def _encode_behind(
        self, text: _Text, utf8: bytes, ids: bytes, end: int, add_special_tokens: bool, /
    ) -> Encoding | None:
        """The Encoding of `text`, whose UTF-8 is `utf8` and whose first `end` bytes have the `ids`: the rest is
        encoded. None where the text may not be cut there, or is malformed behind."""
    def encode_batch(
        self,
        texts: Iterable[_Text],
        add_special_tokens: bool = False,
        *,
        workers: int | None = None,
        plain: bool = False,
    ) -> EncodingBatch:
        """`encode` of every text on `workers` threads (None: as many as pay). Padding to the longest goes over all.

        InvalidText names the first bad item: `details` holds `item` and `position`.
        """
    def count(self, text: _Text, add_special_tokens: bool = False, *, plain: bool = False) -> int:
        """`len(encode(…))` without the ids."""
    def count_batch(
        self,
        texts: Iterable[_Text],
        add_special_tokens: bool = False,
        *,
        workers: int | None = None,
        plain: bool = False,
    ) -> list[int]: ...
    def _encode_routed(
        self, text: _Text, add_special_tokens: bool, session: Any, lookup: str | None, plain: bool
    ) -> Encoding: ...
    def _encode_batch_routed(
        self, texts: Iterable[_Text], add_special_tokens: bool, workers: int | None, plain: bool
    ) -> EncodingBatch: ...
    def _count_routed(self, text: _Text, add_special_tokens: bool, plain: bool) -> int: ...
    def _count_batch_routed(
        self, texts: Iterable[_Text], add_special_tokens: bool, workers: int | None, plain: bool
    ) -> list[int]: ...
    @property
    def program(self) -> Program | None: ...
    @property
    def native_calls(self) -> tuple[int, int]:
        """Texts that the native engine encoded or counted here, and their bytes of UTF-8."""

    @property
    def native_session_calls(self) -> int:
        """Of `native_calls`: changes of sessions."""

    @property
    def native_uncut(self) -> int:
        """Changes of sessions after which 4 KiB and more of text had no place to cut."""

@final
class TokenPatch(tuple[int, Encoding, int]):
    """What a change made of the tokens of a session: `keep_tokens` stay, `replacement_ids` come behind them."""

    @property
    def keep_tokens(self) -> int: ...
    @property
    def replacement_ids(self) -> Encoding: ...
    @property
    def revision(self) -> int: ...
    def __new__(cls, values: tuple[int, Encoding, int], /) -> TokenPatch: ...

class SessionBase:
    """A growing text of one encoder and its ids, in memory. Thread-safe: one change at a time.

    append, replace and present are whole changes. A store takes them in halves: `prepare_*` (True: there is something
    to commit), then what it asks of the prepared change, then `commit` with the revision, or `discard`; its own lock
    keeps other changes away between them. Positions are bytes of the text's UTF-8 unless said otherwise.
    """

    def __init__(self, encoder: EncoderBase) -> None: ...
    def append(self, text: _Text, *, expected_revision: int | None = None) -> TokenPatch: ...
    def replace(self, start: int, text: _Text, *, expected_revision: int | None = None) -> TokenPatch:
        """Everything from code point `start` on becomes `text`."""
    def present(self, text: _Text, add_special_tokens: bool = False) -> Encoding: ...
    def snapshot(self) -> Encoding: ...
    def prepare_append(self, text: _Text, /) -> bool: ...
    def prepare_replace(self, start: int, text: _Text, /) -> bool: ...
    def prepare_present(self, text: _Text, /) -> bool: ...
    def presented(self, text: _Text, add_special_tokens: bool, /) -> Encoding:
        """The Encoding of `text`, which must be what the session holds: only its length is looked at (ValueError)."""
    def commit(self, revision: int, /) -> TokenPatch: ...
    def discard(self) -> None: ...
    def prepared_begin(self) -> int:
        """Where the prepared change begins to encode: a cut before which nothing changes."""
    def changes(self, from_bytes: int, from_tokens: int, /) -> tuple[list[tuple[bytes, bytes]], bytes, bytes]:
        """What stands behind a point once the change is committed: final steps as (ids, text), each of which ends at a
        cut; ids and text of the open end. ValueError for a point that is not held or lies behind `prepared_begin`."""
    def text_before(self, end: int, longest: int, /) -> bytes: ...
    def held_ids(self) -> bytes: ...
    def held_text(self) -> bytes: ...
    def restore(self, revision: int, final: tuple[int, int, int], open_text: bytes, open_ids: bytes, /) -> None:
        """As another one left off: `final` (bytes, code points, tokens) is a cut, before which nothing is held."""
    def adopt(self, text: bytes, ids: bytes, points: bytes, /) -> None:
        """What lies before the held text. `points`: uint64 (bytes, code points, tokens) of cuts in it, ascending."""
    def __len__(self) -> int: ...
    @property
    def text_length(self) -> int:
        """Code points."""
    @property
    def byte_length(self) -> int: ...
    @property
    def held_from(self) -> int: ...
    @property
    def final_bytes(self) -> int: ...
    @property
    def memory(self) -> int:
        """Bytes that text, ids and marks take; memory that was never written to is not counted by the host."""
    @property
    def revision(self) -> int: ...

_ScopeKey = tuple[str | int, str | int, str | int, str | int]  # model, tokenizer, adapter, tenant

@final
class SharedTokenCache:
    """Tokens of finished requests, by scope, to copy from: `toktier.speculative` (docs/shared-lookup.md).

    Each scope is a ring of `ring_tokens` tokens with a table of `slots` slots, `bytes_per_scope` bytes in all, taken
    when the scope is created and never more. Thread-safe: proposals wait for no insert, inserts into one scope
    follow each other, without the GIL. Deterministic: the same calls of one thread give the same results in every
    process. A child of fork has all of it as it was between two inserts, and shares nothing after.
    """

    def __new__(cls, budget_bytes: int, max_scopes: int = 4, key_len: int = 8) -> SharedTokenCache:
        """`budget_bytes`: of all scopes together; `max_scopes` that may be there at once, beyond which the least
        recently used one is dropped whole; `key_len`: tokens that must match. ConfigInvalid for less than 6,144
        bytes a scope, for `max_scopes` or `key_len` 0, and for a key that the ring cannot hold."""
    @property
    def budget_bytes(self) -> int: ...
    @property
    def max_scopes(self) -> int: ...
    @property
    def key_len(self) -> int: ...
    @property
    def slots(self) -> int:
        """Of each scope: the largest power of two of 8-byte slots within half of its share of the budget."""
    @property
    def ring_tokens(self) -> int:
        """Tokens that each scope holds, markers between requests included: what the slots leave, 4 bytes each."""
    @property
    def bytes_per_scope(self) -> int: ...
    def insert(self, scope: _ScopeKey, tokens: Iterable[int] | _Buffer | PromptLookup) -> int:
        """Stores what is new of a finished request, its last `ring_tokens - 1` tokens at most; gives the ring tokens
        that took. A request of `key_len` tokens or fewer is nothing: it creates no scope and uses none.

        All or nothing: InvalidToken (also for 4294967295, which is the marker), TypeError, MemoryError for a new
        scope.
        """
    def propose(
        self, scope: _ScopeKey, history: Iterable[int] | _Buffer | PromptLookup, max_len: int
    ) -> list[int] | None:
        """What followed the latest occurrence of the last `key_len` tokens of `history`, at most `max_len` tokens;
        None: nothing. Of a buffer or a sequence with slices only those are read. A use of the scope, found or not;
        creates none. ConfigInvalid for a `max_len` below 0."""
    def propose_into(self, scope: _ScopeKey, history: Iterable[int] | _Buffer | PromptLookup, out: _Buffer) -> int:
        """The same into a writable buffer of uint32, whose length is the most that is proposed; gives the number of
        tokens. What is behind them is undefined."""
    def remove(self, scope: _ScopeKey, /) -> bool:
        """Drops a scope and gives its memory back; whether there was one."""
    def clear(self) -> None: ...
    def stored(self, scope: _ScopeKey, /) -> int:
        """Ring tokens ever written to the scope, markers included; 0 where there is none. No use of it."""
    def __contains__(self, scope: _ScopeKey, /) -> bool:
        """Whether there is such a scope. No use of it."""
    def stats(self) -> dict[str, int]:
        """Of the scopes that are there: `scopes`, `bytes`, `stored_tokens` (ever written), `held_tokens`. Since the
        cache was made: `dropped_scopes` (for others), `inserts` and `inserted_tokens` (of requests longer than
        `key_len`), `proposals` (calls), `copies` (those that found something), `proposed_tokens`."""

@final
class PromptLookup:
    """The tokens of one request, and where its last `key_len` tokens stood before. Constant time and about 30 bytes
    a token. One request, one thread: others wait."""

    def __init__(self, key_len: int) -> None:
        """ConfigInvalid for a `key_len` below 1."""
    def append(self, tokens: Iterable[int] | _Buffer | PromptLookup) -> None:
        """All or nothing: InvalidToken, TypeError, MemoryError; ValueError beyond 2**31 - 1 tokens."""
    def truncate(self, length: int) -> None:
        """Back to the first `length` tokens, as if the others had never been there. ValueError beyond `len()`."""
    def propose(self, max_len: int) -> list[int] | None:
        """What followed the latest earlier occurrence of the last `key_len` tokens, up to the end of the history, at
        most `max_len` tokens; None: nothing. ConfigInvalid for a `max_len` below 0."""
    def history(self) -> list[int]: ...
    def __len__(self) -> int: ...
    @property
    def key_len(self) -> int: ...
    @property
    def memory(self) -> int:
        """Bytes."""

@final
class CopyWindow:
    """How many tokens the next copy may propose: twice as many after one that was accepted whole, half after others."""

    def __init__(self, start: int = 2, minimum: int = 1, maximum: int = 8) -> None:
        """`start` is brought between the others. ConfigInvalid unless 1 <= minimum <= maximum."""
    @property
    def current(self) -> int: ...
    def record(self, proposed: int, accepted: int) -> None:
        """A copy of `proposed` tokens of which the model accepted the first `accepted`. 0 proposed changes nothing."""

@final
class MissBackoff:
    """How many rounds to propose nothing: 1 after a copy of which nothing was accepted, twice as many after each
    further one in a row, at most `cap`; 0 after any accepted token."""

    def __init__(self, cap: int = 16) -> None: ...
    @property
    def pause(self) -> int:
        """Rounds still to be passed over."""
    def skip(self) -> bool:
        """To be asked once a round: whether it is passed over."""
    def record(self, proposed: int, accepted: int) -> None: ...

class GpuError(RuntimeError):
    """The GPU engine cannot be used. `code` (native/gpu/error.h): driver_missing, driver_too_old, no_device,
    unsuitable_program, abi_mismatch, load_failed, out_of_memory, launch_failed, device_lost, hung, closed or forked."""

    code: str

def gpu_device(index: int = 0, driver: str | None = None) -> dict[str, Any]:
    """`name`, `architecture` (sm_90), `compute_capability` (9.0), `driver_version` (13.0), `memory_bytes`, and how many
    `devices` there are. Makes no context. `driver`: path of libcuda; None: the system's. Raises GpuError."""

@final
class GpuIds:
    """Ids of many texts on a device, as int32: for whatever takes DLPack or `__cuda_array_interface__`. They live as
    long as this object, or what was made of it by DLPack, whether the engine is closed or not."""

    @property
    def row_splits(self) -> memoryview:
        """uint64 ("Q") on the host, one more than there are texts: row i is `ids[row_splits[i]:row_splits[i + 1]]`."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __len__(self) -> int: ...
    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class GpuEngine:
    """One program on one device, for any number of threads.

    The ids are those of the CPU engine for every text: it redoes what a kernel flags, and after a fault of the device
    whatever is not done. In a forked child, after `close` and after the device is lost it serves alone, and results say
    so (`backend`).
    """

    def __init__(
        self,
        program: Program,
        cubin: bytes,
        *,
        device: int = 0,
        lanes: int = 2,
        lane_bytes: int = ...,
        driver: str | None = None,
        patience: float = 10.0,
    ) -> None:
        """`lanes`: chunks that are on their way at once, 8 at most. `lane_bytes`: text of a chunk, 16 MiB unless told;
        halved until it fits the free memory. `driver`: path of libcuda; None: the system's. `patience`: seconds, and
        one more for 4 MiB of text, after which a run counts as one that hangs. Raises GpuError."""
    def encode(self, text: _Text, add_special_tokens: bool = False, plain: bool = False) -> Encoding: ...
    def encode_batch(
        self, texts: Iterable[_Text], add_special_tokens: bool = False, plain: bool = False
    ) -> EncodingBatch:
        """Errors as those of `EncoderBase.encode_batch`, of the first item that has one."""
    def encode_on_device(
        self, texts: Iterable[_Text], add_special_tokens: bool = False, plain: bool = False, *, stream: Any = None
    ) -> GpuIds:
        """The ids of all texts in memory of the device, complete when the call returns, whatever stream reads them.

        `stream`: of the caller, a handle (0: the legacy default stream) or an object with `__cuda_stream__`. It is made
        to wait for the copies that put the ids together, for which the call then does not: what is queued in it from
        then on finds them. Special tokens of a template cost two small copies a text. Raises GpuError where the device
        does not serve, TypeError and ValueError for what is no stream."""
    def time(self, texts: Iterable[_Text]) -> dict[str, float]:
        """Milliseconds of one run of as many texts as fit a chunk, by step: h2d, each kernel, d2h. Raises GpuError."""
    def facts(self) -> dict[str, Any]:
        """Those of `gpu_device`; `index`, `multiprocessors`; `kernels` with registers, local and shared bytes and
        resident blocks of each; `lanes`, `lane_bytes`; bytes of tables, of the device in all, and page-locked;
        `patience_seconds` with a run of a full lane."""
    def counters(self) -> dict[str, Any]:
        """`texts`, `bytes`; `device_texts`, all of whose ids came from the device; `device_documents`, `chunks`;
        `redone` by the CPU engine, by reason code; `uncut` and `fallen`, documents that nothing cut and that a fault
        left; `faults`, and the `last_fault` as `code` and `message` or None."""
    @property
    def is_open(self) -> bool:
        """Whether the device serves."""
    def close(self) -> None:
        """Gives back what is on the device, when the calls that use it have ended."""

def build_facts() -> dict[str, Any]: ...

class UnsuitableProgram(ValueError):
    """A program that no device can run: `code` names the premise that fails, the message says it as a clause."""

    code: str

def device_tables(program: Program) -> bytes:
    """The image of tables that a device is given of a program: the same program gives the same bytes. No device is
    needed. Raises UnsuitableProgram."""

def device_facts(program: Program) -> dict[str, int]:
    """Of the same image: bytes, left_elements, right_elements (of the transition monoids). Raises UnsuitableProgram."""

def unsuitable(program: Program) -> tuple[str, str] | None:
    """Code and clause of the first premise that keeps a program off devices; None where all of them hold."""

def transition_monoid(table: bytes, n_class: int, n_states: int, start: int) -> dict[str, Any] | None:
    """The functions that texts make on the states of the automaton `table` (next state by state and class), in which a
    segment begins in `start`: n_elements; of_class, of_first: the element of each class, inside a segment and at its
    begin; compose: [a * n_elements + b] a, then b; state: where each leads from `start`; functions: what each does, by
    state. None where there are more than 255."""

def gpu_abi() -> tuple[int, ...]:
    """The words that `tt_abi` of a cubin must hold (kernels/device/abi.h)."""

def gpu_kernels() -> tuple[str, ...]:
    """Names of the kernels that are launched."""

def build_bpe(
    raw: list[bytes],
    strings: list[bytes],
    flags: _Buffer,
    merges: _Buffer,
    byte_level: bool,
    initial: _Buffer,
    byte_fallback: _Buffer,
    ignore_merges: bool,
    unk_id: int | None,
) -> tuple[dict[str, bytes], bytes, dict[str, Any]]:
    """BPE sections of a program, the rules that can fire, and what was proved.

    raw, strings: by id; `raw[i]` is what a piece must read to be token i (b"": none), `strings[i]` its string (b"" and
    clear flags: no such id). flags: TFLG with EXISTS, MODEL, ADDED, SPECIAL. merges: u32 rows (left, right, product) in
    rank order, every pair once, its last place. initial: byte-level u32[256], symbol of each byte or 0xFFFFFFFF; else
    u32 rows (code point, id). byte_fallback: u32[256] or empty. unk_id: the unknown token.

    Returns the sections of merges (MDIS MENT MPRD, or PAIR), look-ups (PLIN PKEY VLIN, or PHSH VHSH), TFLG RAWO RAWB
    STRO STRB, and JBYT or JSYM, JCHR, JFRG (none where nothing proves a cut);
    the rules that can fire, as rows of `merges` in rank order; and statistics: merges, live, dead, kept_unproved (of
    live: rules that a fallback or unknown symbol may reach), tokens (of the model), reachable, unreachable (by merges
    alone), monotone, max_piece (bytes) and pair_seed (for CONF), join ("JBYT", "JSYM" or None). ValueError, one
    sentence, for tables that no tokenizer.json can mean.
    """

def find_boundary_rules(
    left: _Buffer,
    right: _Buffer,
    matrix: _Buffer,
    n_class: int,
    left_start: int,
    right_end: int,
    ascii_class: _Buffer,
) -> tuple[bytes, int, int, int]:
    """The section RULE of boundary tables (b"": none), and its terms that say start, dropped, undecided. `ascii_class`:
    u8[128], the class of each ASCII character. ValueError for what is no such table."""

def cover_vocabulary(program: Program, mutants: int) -> dict[str, Any]:
    """Texts that show each token and each merge rule of a program, and the proofs of those that none can show.

    texts: list[str]; documents: the same joined, everything that they show still shown; rank_texts: list[str] that tell
    the ranks of overlapping rules apart. tokens (by id), rules (by rank): bytes of outcomes
    (`toktier.certify.vocabulary_outcomes`). rank_pairs, rank_pairs_told, rank_pairs_blocked; mutants (at most as
    many as asked for), mutants_killed, mutants_apart: int. Deterministic. Seconds, without the GIL.
    """

def trace_merges(program: Program, text: bytes) -> tuple[list[int], list[int]]:
    """Ids of a text (valid UTF-8) by plain merging of its pieces, and the ranks of the rules that fired, in order."""

def boundary_mutants(
    n_class: int,
    n_left: int,
    n_right: int,
    left: bytes,
    right: bytes,
    matrix: bytes,
    left_start: int,
    right_end: int,
    strings: list[bytes],
) -> dict[str, Any]:
    """Every change of one entry of two-pass boundary tables, run over class strings until one comes out otherwise:
    `tested`, `killed`, and `survivors` as (0 left, 1 right, 2 matrix; place; value). Position 0 starts a piece
    whatever the tables say. ValueError for tables that do not fit their sizes."""

def token_mutants(
    n_class: int,
    n_state: int,
    start: int,
    next: bytes,
    actions: bytes,
    end: bytes,
    pending: bytes,
    strings: list[bytes],
) -> dict[str, Any]:
    """The same for the one-pass form: 0 next, 1 actions, 2 end of text. `refused`: changes that the program reader does
    not take, not in `tested`; `equivalent`: no text tells them from the tables; `survivors`: neither
    killed nor that."""

@final
class PrefixStore:
    """Ids of prefixes by their digests, within a budget. Of `toktier.cache`."""

    def __init__(self, capacity: int, of_resident: bool) -> None: ...
    def stats(self) -> dict[str, int]: ...
    def sizes(self, name_space: bytes) -> dict[str, int]:
        """entries, bytes, resident_bytes of one namespace."""
    def clear(self) -> None: ...

@final
class PrefixIndex:
    """What one wrapper brings to a store. `special_ids`: of the specials, in order; empty where ids are not known."""

    def __init__(
        self, store: PrefixStore, specials: list[bytes], name_space: bytes, special_ids: list[int] = ...
    ) -> None:
        """`specials`: none empty; none overlaps another or itself (not checked)."""
    @property
    def hits(self) -> int: ...
    @property
    def misses(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def uncached_tokens(self) -> int: ...
    @property
    def unplaced(self) -> int: ...
    @property
    def bypassed(self) -> int: ...
    @property
    def second_level_hits(self) -> int: ...
    @property
    def second_level_errors(self) -> int: ...
    def second_level_failed(self) -> None:
        """One more call of a second level that raised."""
    def bypass(self) -> None:
        """One more text that was not looked up."""
    def find(self, text: _Text, add_special_tokens: bool = False) -> PrefixLookup:
        """InvalidText as `EncoderBase.encode`."""
    def boundaries(self, text: bytes, add_special_tokens: bool = False) -> list[tuple[int, int, bytes]]:
        """For tests: end in bytes, index of the special, and key of every occurrence."""

@final
class PrefixLookup:
    """One text: the longest known prefix, and what becomes of the rest (native/bind/prefix_lookup.h)."""

    @property
    def boundaries(self) -> int: ...
    @property
    def bytes_known(self) -> int: ...
    @property
    def tokens_known(self) -> int: ...
    @property
    def tokens_new(self) -> int: ...
    def open_keys(self) -> list[bytes]: ...
    def adopt(self, index: int, ids: bytes) -> bool: ...
    def settle(self) -> bool: ...
    def parts(self, extend: bool) -> list[str]: ...
    def take(self, ids: Iterable[int] | _Buffer) -> None: ...
    def keep(self, part: int) -> None: ...
    def encoding(self, backend: str) -> Encoding: ...
    def instead(self, whole: Encoding) -> Encoding: ...
    def encode_by(self, encoder: EncoderBase, extend: bool) -> Encoding: ...
    def stored(self, most: int) -> list[tuple[bytes, bytes]]: ...

def added_tokens(program: Program) -> list[tuple[int, str, int]]:
    """Id, content and `layout.AddedFlag` of every added token."""

def sha256(data: bytes, instructions: bool = True) -> bytes:
    """For tests: by the CPU's instructions where it has them, and without."""

def has_sha_instructions() -> bool: ...

# In a build with TOKTIER_FAULTS only (native/engine/faults.h).
def set_fault(name: str) -> None:
    """Plants one fault in the engine of this process, "" for none. Not while anything is encoded."""
