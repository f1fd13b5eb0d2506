"""How much a batcher takes at once, how long it waits, and when it refuses: six numbers of the program that serves.

They are arguments and no settings of the host: a file or a variable that changed them would change every program there,
and what is right follows from the traffic of one. No limit can change an id.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from toktier.errors import ConfigInvalid
from toktier.labels import MAX_QUOTED, shown

MAX_WAIT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`inline_bytes`: texts of at most so many bytes are encoded by their caller at once, where the CPU engine serves:
    it takes less time than the way to another thread and back; 0: none are.
    `max_batch`, `max_batch_bytes`: texts of one batch, and their bytes; a text of as many bytes is encoded alone,
    beside the batches. `max_wait`: seconds that a text may be held back so that a batch grows large enough for a GPU;
    without one nothing is held back. `queue_texts`, `queue_bytes`: unanswered texts, and their bytes, from which on
    callers get QueueFull; one larger text is taken when there is no other.

    Bytes are those of a str in memory, about those of its UTF-8. Raises ConfigInvalid.
    """

    inline_bytes: int = 2048  # from which on the engine lets other threads run meanwhile
    max_batch: int = 1024
    max_batch_bytes: int = 1 << 20
    max_wait: float = 0.001
    queue_texts: int = 8192
    queue_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "max_wait":
                valid = type(value) in (int, float) and 0 <= value <= MAX_WAIT_SECONDS
                expected = f"seconds from 0 to {MAX_WAIT_SECONDS:g}"
            else:
                least = 0 if field.name == "inline_bytes" else 1
                valid = type(value) is int and value >= least
                expected = f"a number from {least} on"
            if not valid:
                raise ConfigInvalid(
                    f"{field.name} is {shown(repr(value), MAX_QUOTED)}: expected {expected}",
                    details={"argument": field.name},
                    remedy=f"correct {field.name}, or leave it out",
                )
