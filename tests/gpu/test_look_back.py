"""The scan that waits for what earlier tiles publish, against a fold: an operation that does not commute, and mixtures
of tiles that are known alone and tiles that are known with all before them, beyond the 32 that a warp looks at at once.
"""

from __future__ import annotations

import ctypes
import functools
import random
from itertools import accumulate

import pytest

from tests.support import simt_build
from toktier import _native

THREADS = 128
ALONE, ALL = 1 << 30, 2 << 30  # status of a tile
_U8, _U32 = ctypes.POINTER(ctypes.c_uint8), ctypes.POINTER(ctypes.c_uint32)


class _Params(ctypes.Structure):
    _fields_ = (
        ("compose", ctypes.c_char_p),
        ("values", _U32),
        ("words", _U32),
        ("counter", _U32),
        ("before", _U32),
        ("n_elements", ctypes.c_uint32),
        ("tiles", ctypes.c_uint32),
    )


@functools.cache
def library() -> ctypes.CDLL:
    made = ctypes.CDLL(str(simt_build.build_library("look_back", [simt_build.SIMT / "look_back.cpp"])))
    u32, u64 = ctypes.c_uint32, ctypes.c_uint64
    made.look_back_run.argtypes = [ctypes.POINTER(_Params), u32, u64, u32, ctypes.c_char_p, u64]
    return made


@functools.cache
def monoid() -> tuple[int, bytes]:
    """Functions on three states: what a rotation, and one that makes two states the same, compose to."""
    made = _native.transition_monoid(bytes([1, 1, 2, 1, 0, 2]), 2, 3, 0)
    assert made is not None
    return made["n_elements"], made["compose"]


@pytest.mark.parametrize("seed", range(12))
def test_a_scan_is_a_fold(seed: int) -> None:
    """Tiles before `known` have run: the first of them knows all, others what they are alone, or all."""
    rng = random.Random(seed)
    n, compose = monoid()
    tiles, known = (100, 97) if seed < 6 else (rng.randrange(1, 8), 0)
    values = [rng.randrange(n) for _ in range(tiles * THREADS)]
    expected = list(accumulate(values, lambda a, b: compose[a * n + b], initial=0))
    words = [0] * tiles
    for tile in range(known):
        inside = values[tile * THREADS : (tile + 1) * THREADS]
        alone = functools.reduce(lambda a, b: compose[a * n + b], inside, 0)
        knows_all = tile == 0 or (seed % 2 and rng.random() < 0.03)
        words[tile] = ALL | expected[(tile + 1) * THREADS] if knows_all else ALONE | alone
    array = ctypes.c_uint32 * (tiles * THREADS)
    before, given, counter = array(), array(*values), ctypes.c_uint32(known)
    published = (ctypes.c_uint32 * tiles)(*words)
    params = _Params(compose, given, published, ctypes.pointer(counter), before, n, tiles)
    report = ctypes.create_string_buffer(1000)
    blocks = tiles - known + 1  # one more than there is work for
    assert library().look_back_run(params, blocks, seed, 3, report, len(report)) == 0, report.value
    assert list(before)[known * THREADS :] == expected[known * THREADS : -1]
    assert list(published)[known:] == [ALL | expected[(tile + 1) * THREADS] for tile in range(known, tiles)]
