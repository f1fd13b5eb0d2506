"""The merge rules of a program, read back from whichever form its table has: compact or wide (docs/program-format.md).

For tools, tests and the slow oracle of cuts. Not the engine's look-up: kernels/shared/pair_table.h.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from toktier.program.file import ProgramFile
from toktier.program.layout import NONE

_EMPTY = (1 << 64) - 1


def live_rules(sections: Callable[[str], bytes | memoryview]) -> list[tuple[int, int, int]]:
    """(left, right, product) by rank. `sections`: the bytes of a section by its tag."""

    def words(tag: str, kind: str, size: int) -> tuple[int, ...]:
        data = sections(tag)
        return struct.unpack(f"<{len(data) // size}{kind}", data)

    products = words("MPRD", "I", 4)
    sides: dict[int, tuple[int, int]] = {}
    for entry in words("MENT", "Q", 8):
        if entry != _EMPTY:
            sides[entry & 0xFFFFFF] = (entry >> 44, entry >> 24 & 0xFFFFF)
    wide = words("PAIR", "I", 4)
    for left, right, order in zip(wide[0::3], wide[1::3], wide[2::3], strict=True):
        if left != NONE:
            sides[order] = (left, right)
    return [(*sides[order], products[order] if products else order) for order in sorted(sides)]


def program_rules(program: ProgramFile) -> list[tuple[int, int, int]]:
    """The rules of a program file."""
    return live_rules(program.section)
