"""The matcher tables of added tokens: a trie over UTF-8 bytes (sections A0*, A1* of docs/program-format.md).

Nodes are numbered in the order in which sorted strings first reach them, so a child's number is above its parent's and
50,000 strings take a fraction of a second. Not here: how matches are chosen (native/engine).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass

from toktier.program.layout import NONE


@dataclass(frozen=True)
class ByteTrie:
    """Little-endian tables, named as the last two letters of the section tags."""

    nf: bytes  # u32 [nodes + 1]: first edge of each node
    eb: bytes  # u8 [edges]: byte, ascending in a node
    ec: bytes  # u32 [edges]: child
    nt: bytes  # u32 [nodes]: value of the string that ends here, or none


def build_byte_trie(values: Mapping[bytes, int]) -> ByteTrie | None:
    """The trie of the strings in `values` (none empty), or None when there are none. Linear in their total length."""
    if not values:
        return None
    parents = array("I")  # by edge, in order of creation: edge k leads to node k + 1
    labels = bytearray()
    ends = {}
    path = [0]  # node reached after each prefix of the last string
    last = b""
    for string in sorted(values):
        shared = _shared_prefix(last, string)
        first = len(labels) + 1
        new = len(string) - shared
        parents.append(path[shared])
        parents.extend(range(first, first + new - 1))
        labels += string[shared:]
        del path[shared + 1 :]
        path.extend(range(first, first + new))
        ends[path[-1]] = values[string]
        last = string
    edges = len(labels)
    order = sorted(range(edges), key=parents.__getitem__)  # stable: bytes stay ascending in a node
    starts = array("I", bytes(4 * (edges + 2)))
    for parent in parents:
        starts[parent + 1] += 1
    total = 0
    for node in range(edges + 2):
        total += starts[node]
        starts[node] = total
    terminals = array("I", [NONE]) * (edges + 1)
    for node, value in ends.items():
        terminals[node] = value
    return ByteTrie(
        nf=little_endian(starts),
        eb=bytes(map(labels.__getitem__, order)),
        ec=little_endian(array("I", (edge + 1 for edge in order))),
        nt=little_endian(terminals),
    )


def little_endian(values: array[int]) -> bytes:
    """The bytes of an array, little-endian whatever the host."""
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _shared_prefix(a: bytes, b: bytes) -> int:
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    low, high = 0, n  # a[:low] == b[:low], a[:high] != b[:high]
    while high - low > 1:
        middle = (low + high) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle
    return low
