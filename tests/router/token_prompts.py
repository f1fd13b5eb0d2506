"""Prompts of token IDs for tests of the router: unrelated ones, and ones that go on from others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toktier.router.token_ids import TokenIds


def unrelated(number: int, length: int) -> TokenIds:
    """The prompt of this number: no two share a token in the same place."""
    assert 0 <= number < 1000
    return (np.arange(length, dtype=np.uint32) * 1000 + number).astype(np.uint32)


def after(prompt: TokenIds, *more: TokenIds | Sequence[int]) -> TokenIds:
    return np.concatenate((prompt, *(np.array(tokens, dtype=np.uint32) for tokens in more)))
