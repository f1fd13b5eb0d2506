"""Merge rules from ranks.

Ranks say what may be joined: two neighbours whose bytes together are a token, the lowest rank first, then the leftmost.
Rules say which pairs may: a pair for each token is enough, and it is the one that joining by ranks ends in when it is
given the token's bytes alone. For inside a text, as long as nothing was joined across an end of the token's bytes,
what is joined between them is exactly what is joined in the token alone; so only one pair can ever make it. Every
other split of the token into two tokens is a rule that never fires: with or without them the ids are the same.

Not here: tokens no rule makes. They are found as whole pieces (`ignore_merges`).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

Rule = tuple[bytes, bytes]

# Up to this many bytes a scan for the lowest rank is quicker than a heap, and its quadratic cost is bounded.
_SHORT = 64


def last_pairs(ranks: Mapping[bytes, int]) -> list[Rule]:
    """One rule for each token that joining makes, in the order of the tokens' ranks."""
    rules: list[Rule] = []
    for token in sorted(ranks, key=ranks.__getitem__):
        if len(token) > 1 and (pair := last_pair(token, ranks)) is not None:
            rules.append(pair)
    return rules


def last_pair(token: bytes, ranks: Mapping[bytes, int]) -> Rule | None:
    """The two parts that joining by ranks leaves of `token` before it is whole; None where it stops at more."""
    parts = _scan(token, ranks) if len(token) <= _SHORT else _heap(token, ranks)
    return (parts[0], parts[1]) if len(parts) == 2 else None


def all_splits(ranks: Mapping[bytes, int]) -> list[Rule]:
    """Every split of a token into two tokens, by the token's rank, then by the place of the split.

    Longer than `last_pairs` and equal in effect. Files whose digest is pinned were written this way.
    """
    return [
        (token[:cut], token[cut:])
        for token in sorted(ranks, key=ranks.__getitem__)
        for cut in range(1, len(token))
        if token[:cut] in ranks and token[cut:] in ranks
    ]


def _scan(token: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    """Joins until two parts are left, or none may be joined. Quadratic."""
    parts = [token[i : i + 1] for i in range(len(token))]
    never = 1 << 62
    pair_ranks = [ranks.get(token[i : i + 2], never) for i in range(len(token) - 1)]
    while len(parts) > 2:
        lowest = min(pair_ranks)
        if lowest == never:
            break
        at = pair_ranks.index(lowest)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        del pair_ranks[at]
        if at > 0:
            pair_ranks[at - 1] = ranks.get(parts[at - 1] + parts[at], never)
        if at < len(pair_ranks):
            pair_ranks[at] = ranks.get(parts[at] + parts[at + 1], never)
    return parts


def _heap(token: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    """As `_scan`, in n log n look-ups. Parts are known by where they begin; `ends[i]` is 0 once part i was joined."""
    length = len(token)
    ends = list(range(1, length + 1))
    before = list(range(-1, length - 1))
    left = length
    waiting: list[tuple[int, int, int, int]] = []  # rank, begin, middle, end

    def offer(begin: int) -> None:
        middle = ends[begin]
        if middle < length:
            rank = ranks.get(token[begin : ends[middle]])
            if rank is not None:
                heapq.heappush(waiting, (rank, begin, middle, ends[middle]))

    for begin in range(length - 1):
        offer(begin)
    while left > 2 and waiting:
        _, begin, middle, end = heapq.heappop(waiting)
        if ends[begin] != middle or ends[middle] != end:
            continue
        ends[begin], ends[middle] = end, 0
        left -= 1
        if end < length:
            before[end] = begin
            offer(begin)
        if begin > 0:
            offer(before[begin])
    parts: list[bytes] = []
    at = 0
    while at < length:
        parts.append(token[at : ends[at]])
        at = ends[at]
    return parts
