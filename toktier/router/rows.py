"""What is shown of an upstream and of a slot: the rows that metrics, the status page and its document are made of.

Made when somebody asks, by whoever knows: the slot table, the health checks. Not here: the state itself, nor token IDs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from toktier.labels import shown
from toktier.router.vocabulary import SlotState, UpstreamState

SCHEMA: Final = "toktier.serve_slots"
SCHEMA_VERSION: Final = 1
MAX_NOTES: Final = 16  # of one upstream, in a document
MAX_ROWS: Final = 4096  # of each kind, in a document


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRow:
    """`name`: its URL without credentials. `model`: what it calls its model, None while it has not said. `notes`:
    sentences for people: what is wrong with it, or should be set otherwise. `restarts`: how often it was seen to have
    begun anew."""

    number: int
    name: str
    state: UpstreamState
    model: str | None = None
    notes: Sequence[str] = ()
    restarts: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "name": shown(self.name),
            "state": self.state.value,
            "model": None if self.model is None else shown(self.model),
            "notes": [shown(note, 400) for note in self.notes[:MAX_NOTES]],
            "restarts": self.restarts,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRow:
    """`tokens`: how many it is thought to hold, `sure`: how many of these, from the first on, are not guessed.
    `requests`: running on it and waiting for it. `reuses`: requests that found their prefix in it. `last_use`: seconds
    since the epoch, None: never. `held`: kept while others can be taken."""

    upstream: int
    slot: int
    state: SlotState
    tokens: int = 0
    sure: int = 0
    requests: int = 0
    held: bool = False
    reuses: int = 0
    last_use: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "upstream": self.upstream,
            "slot": self.slot,
            "state": self.state.value,
            "tokens": self.tokens,
            "sure": self.sure,
            "requests": self.requests,
            "held": self.held,
            "reuses": self.reuses,
            "last_use": self.last_use,
        }


def slots_document(upstreams: Sequence[UpstreamRow], slots: Sequence[SlotRow], now: float) -> dict[str, Any]:
    """The answer to GET /toktier/slots. `now`: seconds since the epoch by the clock that `last_use` is of."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "now": now,
        "upstreams": [row.to_dict() for row in upstreams[:MAX_ROWS]],
        "slots": [row.to_dict() for row in slots[:MAX_ROWS]],
    }
