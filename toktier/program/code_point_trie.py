"""Maps of all code points as two-stage tables (docs/program-format.md, "Tries"), from ranges; equal blocks are shared.

Not here: which values (`compile.py`, `bpe_sections.py`, `normalizer.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from toktier.program.byte_trie import little_endian
from toktier.program.layout import TRIE_BLOCK, TRIE_STAGE1

_TYPE_CODES = {1: "B", 2: "H", 4: "I"}


def build_trie(ranges: Iterable[tuple[int, int, int]], default: int, element_size: int) -> tuple[bytes, bytes]:
    """Stage 1 (u16) and stage 2 (`element_size` bytes a value, little-endian).

    `ranges` are (first, last, value), ascending and disjoint; code points outside have the value `default`. Blocks are
    numbered in the order of the code points that first need them, so equal maps give equal bytes.
    """
    code = _TYPE_CODES[element_size]
    plain = array(code, [default]) * TRIE_BLOCK
    uniform: dict[int, array[int]] = {default: plain}
    blocks: list[array[int]] = [plain] * TRIE_STAGE1
    mixed: dict[int, array[int]] = {}

    def fill(block: int, begin: int, end: int, value: int) -> None:
        own = mixed.get(block)
        if own is None:
            own = mixed[block] = blocks[block] = plain[:]
        own[begin:end] = array(code, [value]) * (end - begin)

    for first, last, value in ranges:
        low, begin = divmod(first, TRIE_BLOCK)
        high, end = divmod(last + 1, TRIE_BLOCK)
        if low == high:
            fill(low, begin, end, value)
            continue
        if begin:
            fill(low, begin, TRIE_BLOCK, value)
            low += 1
        if low < high:
            if value not in uniform:
                uniform[value] = array(code, [value]) * TRIE_BLOCK
            blocks[low:high] = [uniform[value]] * (high - low)
        if end:
            fill(high, 0, end, value)
    numbers: dict[bytes, int] = {}
    by_object: dict[int, int] = {}
    stage1 = array("H")
    for block_values in blocks:
        number = by_object.get(id(block_values))
        if number is None:
            number = by_object[id(block_values)] = numbers.setdefault(little_endian(block_values), len(numbers))
        stage1.append(number)
    return little_endian(stage1), b"".join(numbers)
