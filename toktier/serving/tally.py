"""What a batcher did, as numbers that only grow: written by its threads with the lock of its room held, once a batch.

Not here: their names and units for a scraper (`toktier.serving.metrics`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

TEXTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
BYTES: Final = tuple(1 << n for n in range(10, 25, 2))
SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class Histogram:
    """`counts[i]`: observations up to `bounds[i]`, and above the bound before; the last ones, above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def to_dict(self) -> dict[str, Any]:
        return {"bounds": list(self.bounds), "counts": list(self.counts), "sum": self.total}


@dataclass(slots=True)
class Tally:
    """`texts`, `bytes`, `tokens`: of batches; `alone`: calls that were made beside them (sessions, look-ups in a store,
    long texts, batches of one caller); `withdrawn`: texts that their callers gave up before they were encoded;
    `failed`: calls that raised; `split`: batches that raised as a whole, whose texts were encoded one by one; `gone`:
    event loops that were closed before their answers came."""

    batches: int = 0
    texts: int = 0
    bytes: int = 0
    tokens: int = 0
    gpu_batches: int = 0
    alone: int = 0
    withdrawn: int = 0
    failed: int = 0
    split: int = 0
    gone: int = 0
    batch_texts: Histogram = field(default_factory=lambda: Histogram(TEXTS))
    batch_bytes: Histogram = field(default_factory=lambda: Histogram(BYTES))
    waits: Histogram = field(default_factory=lambda: Histogram(SECONDS))  # of the oldest text of each batch

    def to_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__}
        return {n: v.to_dict() if isinstance(v, Histogram) else v for n, v in values.items()}
