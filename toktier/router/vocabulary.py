"""The words of the router, one table each: what records, metrics, documents and the status page derive from.

Not here: why an engine serves a tokenizer (`toktier.routing.vocabulary`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

# Below it a look-up costs more than the prefill that it spares; the bound itself counts as a hit.
MIN_REUSE_FOR_HIT: Final = 10


class Reuse(StrEnum):
    """What a request reused, by the measured count of tokens alone."""

    MISS = "miss"
    SOFT_HIT = "soft_hit"
    HIT = "hit"
    UNMEASURED = "unmeasured"


REUSE_MEANINGS: Final[dict[Reuse, str]] = {
    Reuse.MISS: "no token was reused",
    Reuse.SOFT_HIT: f"1 to {MIN_REUSE_FOR_HIT - 1} tokens were reused",
    Reuse.HIT: f"{MIN_REUSE_FOR_HIT} tokens or more were reused",
    Reuse.UNMEASURED: "the upstream did not say how many, or said what cannot be",
}


def reuse_of(measured: int | None) -> Reuse:
    """The class of a measured count of reused tokens; None: it is not known."""
    if measured is None:
        return Reuse.UNMEASURED
    if measured >= MIN_REUSE_FOR_HIT:
        return Reuse.HIT
    return Reuse.SOFT_HIT if measured > 0 else Reuse.MISS


class Choice(StrEnum):
    """Why a slot was chosen."""

    EXACT = "exact"
    SIMILAR = "similar"
    LEAST_RECENT = "least_recent"
    UNROUTED = "unrouted"


CHOICE_MEANINGS: Final[dict[Choice, str]] = {
    Choice.EXACT: "the slot holds the longest prefix of the prompt that is worth its cost",
    Choice.SIMILAR: "no slot holds a prefix; of upstreams that cost the same, this one served the most similar prompt",
    Choice.LEAST_RECENT: "no slot holds a prefix; this one was the least recently used of those that are not held",
    Choice.UNROUTED: "the upstream chose: the request cannot be pinned to one slot",
}


class Unrouted(StrEnum):
    """Why a request is passed on without a slot. Whatever slots it touches are unknown afterwards."""

    SEVERAL_PROMPTS = "several_prompts"
    SEVERAL_CHOICES = "several_choices"
    MEDIA = "media"
    ADAPTER = "adapter"
    HOST_CACHE = "host_cache"


UNROUTED_MEANINGS: Final[dict[Unrouted, str]] = {
    Unrouted.SEVERAL_PROMPTS: "more than one prompt in one request",
    Unrouted.SEVERAL_CHOICES: "more than one completion of the prompt",
    Unrouted.MEDIA: "images or audio, which are no token IDs of the tokenizer",
    Unrouted.ADAPTER: "adapters named in the request: equal IDs would not mean equal state",
    Unrouted.HOST_CACHE: (
        "the upstream keeps prompts in the host's memory (--cache-ram): pinned requests get wrong answers there"
    ),
}


class Ids(StrEnum):
    """Which IDs the upstream worked on."""

    SENT = "sent"
    AGREED = "agreed"
    NORMALIZED = "normalized"
    UPSTREAM = "upstream"


IDS_MEANINGS: Final[dict[Ids, str]] = {
    Ids.SENT: "those of toktier, sent as IDs",
    Ids.AGREED: "text, of which the tokenizer of the upstream gave the same IDs just before",
    Ids.NORMALIZED: "text after the normalizer, of which the tokenizer of the upstream gave the IDs of toktier",
    Ids.UPSTREAM: "those of the upstream's own tokenizer: toktier's differ, or the upstream could not be asked",
}


class Outcome(StrEnum):
    """How a request ended."""

    DONE = "done"
    REFUSED_UPSTREAM = "refused_upstream"
    DISCONNECTED = "disconnected"
    UPSTREAM_LOST = "upstream_lost"
    UPSTREAM_BROKEN = "upstream_broken"
    TIMED_OUT = "timed_out"
    SHUT_DOWN = "shut_down"


OUTCOME_MEANINGS: Final[dict[Outcome, str]] = {
    Outcome.DONE: "answered whole",
    Outcome.REFUSED_UPSTREAM: "the upstream answered with an error, which was passed on",
    Outcome.DISCONNECTED: "the client went away; the upstream was told",
    Outcome.UPSTREAM_LOST: "the connection to the upstream was refused, reset or ended too early",
    Outcome.UPSTREAM_BROKEN: "the upstream answered with what is no answer, or beyond the bounds",
    Outcome.TIMED_OUT: "the upstream was silent for too long",
    Outcome.SHUT_DOWN: "the router ended before the upstream had answered",
}


class UpstreamState(StrEnum):
    """What is known of an upstream."""

    UP = "up"
    DOWN = "down"
    LOADING = "loading"
    REFUSED = "refused"


UPSTREAM_STATE_MEANINGS: Final[dict[UpstreamState, str]] = {
    UpstreamState.UP: "answers, and is used",
    UpstreamState.DOWN: "does not answer; asked again at every health check",
    UpstreamState.LOADING: "answers that its model is being loaded",
    UpstreamState.REFUSED: "answers, and may not be used: what is wrong is in its notes",
}


class SlotState(StrEnum):
    """What is known of a slot's content."""

    EMPTY = "empty"
    KNOWN = "known"
    UNKNOWN = "unknown"


SLOT_STATE_MEANINGS: Final[dict[SlotState, str]] = {
    SlotState.EMPTY: "nothing was sent to it since the upstream or the router began",
    SlotState.KNOWN: "the token IDs in it are known",
    SlotState.UNKNOWN: "it holds something else than was thought; it counts as empty until it is used again",
}


class KvScheme(StrEnum):
    """By which rule blocks of KV events are hashed."""

    DYNAMO = "dynamo"
    VLLM_SHA256_CBOR = "vllm-sha256-cbor"


KV_SCHEME_MEANINGS: Final[dict[KvScheme, str]] = {
    KvScheme.DYNAMO: "xxh3-64 over the IDs as 32-bit little-endian numbers, chained by xxh3-64 over parent and block",
    KvScheme.VLLM_SHA256_CBOR: "SHA-256 over the CBOR of (parent, IDs, extra keys); the key is the low 64 bits of it",
}


class KvForm(StrEnum):
    """How a KV event is written."""

    ARRAY = "array"
    MAP = "map"


KV_FORM_MEANINGS: Final[dict[KvForm, str]] = {
    KvForm.ARRAY: "fields by position, as vLLM wrote events until 2026; has no place for a salt that Dynamo reads",
    KvForm.MAP: "fields by name, as vLLM and SGLang write events now",
}
