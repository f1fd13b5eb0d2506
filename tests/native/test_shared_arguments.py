"""What SharedTokenCache takes as scope, tokens, history and number, and what it says to everything else."""

from __future__ import annotations

import copy
import enum
import pickle
from array import array
from typing import Any

import numpy
import pytest

from toktier._native import Encoding, PromptLookup
from toktier.errors import ConfigInvalid, InvalidToken
from toktier.speculative import Scope, SharedTokenCache

SCOPE = ("m", "t", "", "tenant")


@pytest.fixture
def cache() -> SharedTokenCache:
    return SharedTokenCache(64 * 16384, 64, 3)


def history_of(tokens: list[int]) -> PromptLookup:
    made = PromptLookup(2)
    made.append(tokens)
    return made


KINDS = [
    list,
    tuple,
    iter,
    lambda t: array("I", t),
    lambda t: numpy.array(t, numpy.uint32),
    lambda t: numpy.array(t, numpy.int64),
    lambda t: numpy.array([t, t], numpy.uint32).T[:, 0],  # not contiguous
    lambda t: memoryview(array("I", t)),
    Encoding.from_ids,
    history_of,
]


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_and_histories_of_any_kind(cache: SharedTokenCache, kind: Any) -> None:
    assert cache.insert(SCOPE, kind([1, 2, 3, 4, 5])) == 6
    assert cache.propose(SCOPE, kind([9, 1, 2, 3]), 5) == [4, 5]
    assert cache.propose(SCOPE, kind([2, 3]), 5) is None
    assert cache.propose(SCOPE, kind([]), 5) is None


class Sliced:
    """A history of which nobody may read more than its end."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: Any) -> Any:
        assert isinstance(index, slice)
        assert (index.start, index.stop) == (999_997, 1_000_000)
        return [1, 2, 3]


def test_only_the_end_of_a_history_is_read(cache: SharedTokenCache) -> None:
    cache.insert(SCOPE, [1, 2, 3, 4])
    assert cache.propose(SCOPE, Sliced(), 5) == [4]  # type: ignore[arg-type]
    assert cache.propose(SCOPE, ["no token", 1, 2, 3], 5) == [4]  # type: ignore[list-item]


@pytest.mark.parametrize("wrong", [[1, 2, -1], [1, 2, 1 << 32], [1, 2, True], [1, 2, 3.0], [1, 2, "3"], [1, 2, None]])
def test_what_is_no_token(cache: SharedTokenCache, wrong: list[Any]) -> None:
    for call in (cache.insert, lambda scope, tokens: cache.propose(scope, [0, 0, *tokens], 5)):
        with pytest.raises(InvalidToken) as caught:
            call(SCOPE, wrong)
        assert caught.value.details["index"] in (2, 4)
    assert SCOPE not in cache


@pytest.mark.parametrize("wrong", ["text", b"bytes", bytearray(8), None, 7])
def test_what_is_no_sequence_of_tokens(cache: SharedTokenCache, wrong: Any) -> None:
    with pytest.raises(TypeError):
        cache.insert(SCOPE, wrong)
    with pytest.raises(TypeError):
        cache.propose(SCOPE, wrong, 5)


@pytest.mark.parametrize(
    "wrong",
    [("m", "t", ""), ("m", "t", "", "a", "b"), ["m", "t", "", "a"], "mtxa", None, 5, ("m", "t", None, "a"),
     ("m", "t", True, "a"), ("m", b"t", "", "a"), ("m", 1.0, "", "a"), (("m",), "t", "", "a")],
)  # fmt: skip
def test_what_is_no_scope(cache: SharedTokenCache, wrong: Any) -> None:
    for call in (
        lambda: cache.insert(wrong, [1, 2, 3, 4]),
        lambda: cache.propose(wrong, [1, 2, 3], 5),
        lambda: cache.propose_into(wrong, [1, 2, 3], array("I", [0])),
        lambda: cache.remove(wrong),
        lambda: cache.stored(wrong),
        lambda: wrong in cache,
    ):
        with pytest.raises(TypeError, match="scope"):
            call()
    assert cache.stats()["scopes"] == 0


class Number(enum.IntEnum):
    ONE = 1


DIFFERENT: list[Any] = [
    ("ab", "c", "", "d"), ("a", "bc", "", "d"), ("abc", "", "", "d"), ("", "abc", "", "d"), ("abcd", "", "", ""),
    ("a\0", "", "", ""), ("a", "\0", "", ""), ("a", "", "\0", ""),
    (1, 0, 0, 0), ("1", 0, 0, 0), (1, "0", 0, 0), (256, 0, 0, 0), (-1, 0, 0, 0), ("-1", 0, 0, 0),
    ((1 << 64) - 1, 0, 0, 0),
    (1 << 63, 0, 0, 0), (-(1 << 63), 0, 0, 0), (1 << 200, 0, 0, 0), (str(1 << 200), 0, 0, 0), (-(1 << 200), 0, 0, 0),
    ("é", "", "", ""), ("e\u0301", "", "", ""), ("É", "", "", ""), ("\ud800", "", "", ""),
    ("\ud801", "", "", ""), ("?", "", "", ""),
    ("\ufffd", "", "", ""), ("a" * 5000, "", "", ""), ("a" * 5000 + "b", "", "", ""),
]  # fmt: skip


def test_no_two_keys_are_one(cache: SharedTokenCache) -> None:
    for token, scope in enumerate(DIFFERENT):
        cache.insert(scope, [1, 2, 3, 100 + token])
    assert cache.stats()["scopes"] == len(DIFFERENT)
    for token, scope in enumerate(DIFFERENT):
        assert cache.propose(scope, [1, 2, 3], 5) == [100 + token], scope


def test_equal_keys_are_one(cache: SharedTokenCache) -> None:
    cache.insert(Scope("m", 1, 0, "é"), [1, 2, 3, 4])
    for scope in (("m", 1, 0, "é"), Scope("m", Number.ONE, 0, b"\xc3\xa9".decode())):
        assert cache.propose(scope, [1, 2, 3], 5) == [4]


def test_into_a_buffer(cache: SharedTokenCache) -> None:
    cache.insert(SCOPE, [1, 2, 3, 40, 41, 42])
    out = array("I", [7] * 5)
    assert cache.propose_into(SCOPE, [1, 2, 3], memoryview(out)[:2]) == 2
    assert out.tolist() == [40, 41, 7, 7, 7]
    assert cache.propose_into(SCOPE, [1, 2, 3], out) == 3
    assert out.tolist() == [40, 41, 42, 7, 7]
    assert cache.propose_into(SCOPE, [2, 2, 3], out) == 0
    assert cache.propose_into(SCOPE, [1, 2, 3], array("I")) == 0
    numbers = numpy.zeros(3, numpy.uint32)
    assert cache.propose_into(scope=SCOPE, history=[1, 2, 3], out=numbers) == 3
    assert numbers.tolist() == [40, 41, 42]


@pytest.mark.parametrize("out", [array("i", [0]), array("Q", [0]), numpy.zeros((2, 2), numpy.uint32), [0], bytes(8)])
def test_what_is_no_buffer_for_a_copy(cache: SharedTokenCache, out: Any) -> None:
    with pytest.raises((TypeError, BufferError)):
        cache.propose_into(SCOPE, [1, 2, 3], out)


def test_numbers(cache: SharedTokenCache) -> None:
    with pytest.raises(ConfigInvalid, match="max_len is -1: expected 0 or more"):
        cache.propose(SCOPE, [1, 2, 3], -1)
    for wrong in (True, 1.0, "1", None):
        with pytest.raises(TypeError, match="max_len must be an integer"):
            cache.propose(SCOPE, [1, 2, 3], wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing the argument 'max_len'"):
        cache.propose(SCOPE, [1, 2, 3])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="budget_bytes must be an integer"):
        SharedTokenCache("64M")  # type: ignore[arg-type]


def test_a_cache_is_neither_copied_nor_pickled(cache: SharedTokenCache) -> None:
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            call(cache)


def test_the_usual_settings() -> None:
    made = SharedTokenCache(64 << 20)
    assert (made.max_scopes, made.key_len) == (4, 8)
