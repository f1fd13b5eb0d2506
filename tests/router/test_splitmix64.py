"""The finalizer of splitmix64, compared with its published values."""

from __future__ import annotations

import numpy as np

from toktier.router.splitmix64 import mixed


def test_it_gives_the_numbers_of_the_generator() -> None:
    """Those of splitmix64 from the seed 0: the finalizer of the multiples of its step."""
    with np.errstate(over="ignore"):
        states = np.arange(1, 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    before = states.copy()
    assert mixed(states).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert states.tolist() == before.tolist()
