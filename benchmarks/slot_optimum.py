"""The most tokens that any choice of slots could have spared, for prompts that came one after another.

Each slot runs a chain of requests, and a request reuses what it shares with the one before it in its chain. The best
chains are a maximum-weight assignment of successors: every request follows another one or begins a slot, and at most
`slots` begin one. Whoever chooses this way knows all prompts beforehand; no router does. With requests at the same time
it is a bound: that of the same prompts one after another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint32]


def shared(a: Ids, b: Ids) -> int:
    end = min(len(a), len(b))
    differs = np.flatnonzero(a[:end] != b[:end])
    return int(differs[0]) if len(differs) else end


def most_spared(prompts: Sequence[Ids], contents: Sequence[Ids], slots: int) -> int:
    """`contents[i]`: what a slot holds behind `prompts[i]`. Tokens reused in all, in O((requests + slots)³)."""
    n = len(prompts)
    size = n + slots
    weights = np.full((size, size), 0.0)  # rows: who comes before, requests then beginnings; columns: after, then ends
    weights[:n, :n] = -1e12
    for i in range(n):
        for j in range(i + 1, n):
            weights[i, j] = min(shared(contents[i], prompts[j]), len(prompts[j]) - 1)
    columns = _assignment(-weights)
    return int(sum(weights[row, column] for row, column in enumerate(columns)))


def _assignment(costs: npt.NDArray[np.float64]) -> list[int]:
    """The column of each row in the cheapest assignment: shortest augmenting paths, a row at a time."""
    size = len(costs)
    row_of = np.full(size + 1, -1)  # of each column; the last one is where a new row enters
    row_price, column_price = np.zeros(size), np.zeros(size + 1)
    for row in range(size):
        row_of[size] = row
        column = size
        distance = np.full(size, np.inf)
        before = np.full(size, size)
        done = np.zeros(size + 1, dtype=bool)
        while row_of[column] >= 0:
            done[column] = True
            here = int(row_of[column])
            reduced = costs[here] - row_price[here] - column_price[:size]
            better = ~done[:size] & (reduced < distance)
            distance[better] = reduced[better]
            before[better] = column
            masked = np.where(done[:size], np.inf, distance)
            nearest = int(masked.argmin())
            step = masked[nearest]
            visited = np.flatnonzero(done)
            row_price[row_of[visited]] += step
            column_price[visited] -= step
            distance[~done[:size]] -= step
            column = nearest
        while column != size:
            row_of[column] = row_of[before[column]]
            column = int(before[column])
    columns = [0] * size
    for column in range(size):
        columns[int(row_of[column])] = column
    return columns
