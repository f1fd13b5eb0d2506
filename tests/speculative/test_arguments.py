"""Arguments that are no such thing are refused at the call, by name, with what was expected; what is one costs what it
should, however large."""

from __future__ import annotations

import re
import subprocess
import sys
from array import array
from collections import UserList, deque
from collections.abc import Callable
from typing import Any

import pytest

from toktier.errors import ConfigInvalid, InvalidToken
from toktier.speculative import CopyWindow, MissBackoff, PromptLookup, Proposer, SharedTokenCache

SCOPE = ("m", "t", "a", "tenant")
KEY, NEXT = [1, 2, 3], [40, 41, 42]


@pytest.fixture
def cache() -> SharedTokenCache:
    made = SharedTokenCache(1 << 20, 2, 3)
    made.insert(SCOPE, [*KEY, *NEXT])
    return made


def strided() -> memoryview:
    return memoryview(array("I", [n for token in [5, *KEY] for n in (token, 0)]))[::2]


@pytest.mark.parametrize(
    "history",
    [
        deque([5, *KEY]), UserList([5, *KEY]), (5, *KEY), strided(), memoryview(array("Q", [5, *KEY])),
        iter([5, *KEY]), dict.fromkeys([5, *KEY]), bytes([5, *KEY]) and memoryview(bytes([5, *KEY])),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_any_iterable_of_integers_is_a_history(cache: SharedTokenCache, history: Any) -> None:
    assert cache.propose(SCOPE, history, 8) == NEXT


@pytest.mark.parametrize("history", [None, 5, "123", b"\1\2\3\0", 1.5], ids=repr)
def test_what_is_no_history_is_refused(cache: SharedTokenCache, history: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: cache.insert(SCOPE, history),
        lambda: cache.propose(SCOPE, history, 8),
        lambda: cache.propose_into(SCOPE, history, array("I", [0])),
        lambda: PromptLookup(2).append(history),
        lambda: Proposer().append(history),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=f"^expected integers, not {type(history).__name__}"):
            call()


@pytest.mark.parametrize("token", [-1, 2**32, True, 1.0, float("nan"), "1", None], ids=repr)
def test_what_is_no_token_is_refused_with_its_place(cache: SharedTokenCache, token: Any) -> None:
    for call in (lambda t: cache.insert(SCOPE, t), lambda t: cache.propose(SCOPE, t, 8), PromptLookup(2).append):
        with pytest.raises(InvalidToken, match=re.escape(f"ids[3] is {token!r}, not an integer")):
            call([1, 2, 3, token])
    assert cache.stored(SCOPE) == len(KEY) + len(NEXT) + 1


@pytest.mark.parametrize("value", [None, True, 1.5, float("nan"), "5", b"5"], ids=repr)
def test_what_is_no_number_is_refused_by_name(cache: SharedTokenCache, value: Any) -> None:
    request = Proposer(cache, SCOPE)
    request.append(KEY)
    assert request.propose() == NEXT[:2]
    calls: dict[str, list[Callable[[], object]]] = {
        "budget_bytes": [lambda: SharedTokenCache(value)],
        "max_scopes": [lambda: SharedTokenCache(1 << 20, value)],
        "key_len": [lambda: SharedTokenCache(1 << 20, 1, value), lambda: PromptLookup(value)],
        "max_len": [lambda: cache.propose(SCOPE, KEY, value), lambda: PromptLookup(2).propose(value)],
        "length": [lambda: PromptLookup(2).truncate(value)],
        "start": [lambda: CopyWindow(value)],
        "minimum": [lambda: CopyWindow(2, value)],
        "maximum": [lambda: CopyWindow(2, 1, value)],
        "cap": [lambda: MissBackoff(value)],
        "proposed": [lambda: CopyWindow().record(value, 1), lambda: MissBackoff().record(value, 1)],
        "accepted": [
            lambda: CopyWindow().record(1, value),
            lambda: MissBackoff().record(1, value),
            lambda: request.settle(value),
        ],
    }
    if value is not None:  # the own limit
        calls["max_len"].append(lambda: request.propose(value))
        calls["key_len"].append(lambda: Proposer(key_len=value))
    for name, of_name in calls.items():
        for call in of_name:
            with pytest.raises(TypeError, match=f"^{name} must be an integer, not {type(value).__name__}$"):
                call()
    request.settle(2)  # nothing that was refused took the copy back
    assert request.stats()["accepted_tokens"] == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SharedTokenCache(-1), "budget_bytes is -1: expected 6144 or more"),
        (lambda: SharedTokenCache(1 << 20, -1), "max_scopes is -1: expected 1 or more"),
        (lambda: SharedTokenCache(1 << 20, 1, -1), "key_len is -1: expected 1 or more"),
        (lambda: PromptLookup(-1), "key_len is -1: expected 1 or more"),
        (lambda: PromptLookup(2).propose(-1), "max_len is -1: expected 0 or more"),
        (lambda: CopyWindow(2, -1), "minimum is -1: expected 1 or more"),
        (lambda: CopyWindow(2, 4, -1), "maximum is -1: expected 4 or more"),
    ],
)
def test_a_number_below_the_least_names_the_least(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        call()
    assert str(caught.value) == message


def test_a_limit_below_0_is_refused_in_a_pause_too(cache: SharedTokenCache) -> None:
    request = Proposer(cache, SCOPE)
    request.append(KEY)
    assert request.propose()
    request.settle(0)
    assert request.backoff.pause == 1
    with pytest.raises(ConfigInvalid, match="max_len is -1: expected 0 or more"):
        request.propose(-1)
    assert request.backoff.pause == 1


@pytest.mark.parametrize(
    "out",
    [
        None, [0] * 4, bytes(16), bytearray(16), array("i", [0] * 4), array("Q", [0] * 4),
        memoryview(array("I", [0] * 8))[::2], memoryview(array("I", [0] * 4)).toreadonly(),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_cannot_be_written_into_is_refused(cache: SharedTokenCache, out: Any) -> None:
    expected = "^out must be a writable, contiguous buffer of uint32, of one dimension, not "
    with pytest.raises(TypeError, match=f"{expected}[a-z.]*{type(out).__name__}$"):
        cache.propose_into(SCOPE, KEY, out)


def test_a_proposer_is_of_its_parts() -> None:
    for given in ({"cache": 5, "scope": SCOPE}, {"window": 5}, {"backoff": 16}):
        with pytest.raises(TypeError, match=r"^\w+ must be a \w+, not int$"):
            Proposer(**given)  # type: ignore[arg-type]


def test_a_key_of_any_length_is_made_at_once_and_finds_nothing() -> None:
    """Work that grew with it would not end."""
    for key_len in (2**40, 2**62, 10**30):
        made = PromptLookup(key_len)
        made.append([7] * 100)
        assert made.propose(5) is None


def test_the_power_behind_a_rolled_hash_is_that_of_each_length() -> None:
    """A wrong one would hide what stands there: every length finds its repetition, one token at a time."""
    for key_len in range(1, 70):
        made = PromptLookup(key_len)
        text = [(n * n * 31 + 7) % 1009 for n in range(2 * key_len + 50)]
        for token in [*text, *text]:
            made.append([token])
        assert made.propose(3) == text[:3]


ALL_THERE_ARE = """
import resource
from toktier.speculative import SharedTokenCache
scope = ("m", "t", "a", "tenant")
cache = SharedTokenCache(1 << 28, 1, 3)
cache.insert(scope, [1, 2, 3, 40, 41, 42])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert cache.propose(scope, [1, 2, 3], 2**31) == [40, 41, 42]
assert cache.propose(scope, [3, 2, 1], 2**31) is None
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.unsanitized  # another interpreter
def test_who_asks_for_all_there_is_takes_memory_for_what_is_found() -> None:
    """And not for what the ring could hold, 128 MiB here."""
    ran = subprocess.run([sys.executable, "-c", ALL_THERE_ARE], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 16 << 10  # KiB
