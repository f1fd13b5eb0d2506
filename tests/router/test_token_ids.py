"""Arrays of token IDs: copies, and the longest common prefix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.router.token_prompts import unrelated
from toktier.router.token_ids import as_ids, shared_prefix

TOKENS = st.lists(st.integers(0, 2), max_size=12)


def naive(a: list[int], b: list[int]) -> int:
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return count


@given(TOKENS, TOKENS)
def test_a_shared_prefix_is_that_of_a_comparison_token_by_token(a: list[int], b: list[int]) -> None:
    assert shared_prefix(as_ids(a), as_ids(b)) == naive(a, b)


@pytest.mark.parametrize("length", [1, 4095, 4096, 4097, 20_479, 20_480, 20_481, 70_000])
def test_a_shared_prefix_may_end_anywhere(length: int) -> None:
    a = unrelated(1, 80_000)
    b = a.copy()
    b[length] += 1
    assert shared_prefix(a, b) == shared_prefix(b, a) == length
    assert shared_prefix(a, a[:length]) == length


def test_ids_are_copied() -> None:
    buffer = np.arange(1000, dtype=np.uint32)
    ids = as_ids(buffer[10:20])
    buffer[:] = 7
    assert ids.tolist() == list(range(10, 20))
    assert ids.base is None
