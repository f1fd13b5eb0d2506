"""Characters that stand for the classes which a pre-tokenizer tells apart, and for what added tokens and normalizers
look at. Deterministic by seed. Not here: strings of classes (toktier/program/coverage.py)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toktier.program.boundary import BoundaryTables

# What flags of added tokens, normalizers and decoders look at, whatever the pre-tokenizer: word characters of several
# kinds and none, white space of several kinds and none, marks that compose with "<", ">", "=" and with letters.
NEIGHBOURS = (
    "a", "Z", "7", "_", "é", "中", "\u0966", " ", "\t", "\n", "\r", "\u00a0", "\u3000", "\u200b", "-", "<", ">", "'",
    "▁", "\u0301", "\u0338", "\u200d", "😀", "\x00", "\U0010ffff",
)  # fmt: skip


def class_members(boundary: BoundaryTables | None, seed: str, members: int) -> list[str]:
    """Of each class of a pre-tokenizer its first code point and up to `members` - 1 others, in the order of classes;
    nothing where there is no pre-tokenizer."""
    if boundary is None:
        return []
    rng = random.Random(seed)
    ranges: dict[int, list[tuple[int, int]]] = {}
    for low, high, number in boundary.class_ranges:
        for part in ((low, min(high, 0xD7FF)), (max(low, 0xE000), high)):
            if part[0] <= part[1]:
                ranges.setdefault(number, []).append(part)
    chosen: dict[str, None] = {}
    for _, parts in sorted(ranges.items()):
        chosen[chr(parts[0][0])] = None
        sizes = [high - low + 1 for low, high in parts]
        for low, high in rng.choices(parts, sizes, k=members - 1):
            chosen[chr(rng.randint(low, high))] = None
    return list(chosen)
