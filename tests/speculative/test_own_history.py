"""A request's own history, the copy window, the pauses, and the Proposer that puts them in front of a shared cache."""

from __future__ import annotations

import subprocess
import sys
from array import array

import pytest

from toktier._native import Encoding
from toktier.errors import ConfigInvalid, InvalidToken
from toktier.speculative import CopyWindow, MissBackoff, PromptLookup, Proposer, SharedTokenCache

SCOPE = ("m", "t", "", "tenant")


def lookup(key_len: int, tokens: list[int]) -> PromptLookup:
    made = PromptLookup(key_len)
    made.append(tokens)
    return made


@pytest.mark.parametrize(
    ("key_len", "tokens", "max_len", "expected"),
    [
        (3, [1, 5, 6, 7, 8, 9, 10, 11, 2, 5, 6, 7], 3, [8, 9, 10]),
        (3, [1, 5, 6, 7, 8, 9, 10, 11, 2, 5, 6, 7], 100, [8, 9, 10, 11, 2, 5, 6, 7]),
        (2, [1, 2, 3, 1, 2, 4, 9, 1, 2], 1, [4]),
        (2, [1, 2, 3, 1, 2, 4, 9, 1, 2], 9, [4, 9, 1, 2]),
        (3, [7, 7, 7, 7], 9, [7]),
        (3, [7, 7, 7], 9, None),
        (3, [], 9, None),
        (1, [4, 4], 9, [4]),
        (2, [1, 2, 3, 1, 2], 0, None),
    ],
)
def test_the_latest_earlier_occurrence(
    key_len: int, tokens: list[int], max_len: int, expected: list[int] | None
) -> None:
    assert lookup(key_len, tokens).propose(max_len) == expected
    one_by_one = PromptLookup(key_len)
    for token in tokens:
        one_by_one.append([token])
    assert one_by_one.propose(max_len) == expected
    assert one_by_one.history() == tokens


def test_taking_tokens_back() -> None:
    made = lookup(2, [1, 2, 3, 4, 1, 2])
    assert made.propose(1) == [3]
    made.truncate(4)
    made.append([1, 2, 7, 5, 1, 2])
    assert made.propose(1) == [7]
    made.truncate(6)
    assert made.propose(1) == [3], "the occurrence before the one that was taken back"
    made.truncate(0)
    assert made.propose(1) is None
    with pytest.raises(ValueError, match="length is 1: the history has 0"):
        made.truncate(1)


def test_what_is_no_history_is_refused_and_changes_nothing() -> None:
    made = lookup(2, [1, 2, 3])
    with pytest.raises(InvalidToken) as caught:
        made.append([4, -1])
    assert caught.value.details == {"index": 1}
    with pytest.raises(TypeError):
        made.append("text")
    assert made.history() == [1, 2, 3]
    with pytest.raises(ConfigInvalid, match="key_len is 0"):
        PromptLookup(0)
    with pytest.raises(ConfigInvalid, match="max_len is -1"):
        made.propose(-1)


@pytest.mark.parametrize(
    "kind", [list, tuple, lambda t: array("I", t), Encoding.from_ids, lambda t: lookup(1, list(t))]
)
def test_tokens_of_any_kind(kind: object) -> None:
    made = PromptLookup(2)
    made.append(kind([1, 2, 3, 0xFFFFFFFF, 1, 2]))  # type: ignore[operator]
    assert made.propose(2) == [3, 0xFFFFFFFF], "in the own history every ID is a token"


def test_memory_stays_a_few_words_a_token() -> None:
    made = PromptLookup(8)
    for start in range(0, 200_000, 100):
        made.append(array("I", range(start, start + 100)))
    assert made.memory < 40 * len(made)
    for _ in range(50):
        made.truncate(190_000)
        made.append(array("I", range(190_000, 200_000)))
    assert made.memory < 40 * len(made), "tokens that were taken back leave nothing behind"


def test_the_window_doubles_and_halves() -> None:
    window = CopyWindow(2, 1, 8)
    seen = []
    for proposed, accepted in [(2, 2), (4, 4), (8, 8), (8, 7), (4, 0), (2, 0), (1, 0), (0, 0)]:
        window.record(proposed, accepted)
        seen.append(window.current)
    assert seen == [4, 8, 8, 4, 2, 1, 1, 1]


def test_the_window_is_kept_in_its_bounds() -> None:
    assert CopyWindow(1, 2, 8).current == 2
    assert CopyWindow(99, 2, 8).current == 8
    window = CopyWindow(3, 1, 5)
    window.record(3, 3)
    assert window.current == 5
    for arguments in ((2, 0, 8), (2, 3, 2), (-1, 1, 8)):
        with pytest.raises(ConfigInvalid):
            CopyWindow(*arguments)


def test_pauses_double_up_to_the_cap() -> None:
    backoff = MissBackoff(16)
    pauses = []
    for _ in range(6):
        backoff.record(2, 0)
        pauses.append(backoff.pause)
        assert [backoff.skip() for _ in range(pauses[-1])] == [True] * pauses[-1]
        assert not backoff.skip()
    assert pauses == [1, 2, 4, 8, 16, 16]
    backoff.record(0, 0)
    assert backoff.pause == 0, "no copy is no miss"
    backoff.record(2, 1)
    backoff.record(2, 0)
    assert backoff.pause == 1, "any accepted token clears it"


@pytest.mark.parametrize(("cap", "pauses"), [(0, [0, 0, 0]), (1, [1, 1, 1]), (3, [1, 2, 3]), (5, [1, 2, 4])])
def test_pauses_of_any_cap(cap: int, pauses: list[int]) -> None:
    backoff = MissBackoff(cap)
    seen = []
    for _ in range(3):
        backoff.record(1, 0)
        seen.append(backoff.pause)
    assert seen == pauses


def proposer(history: list[int], **settings: object) -> Proposer:
    cache = SharedTokenCache(1 << 20, 1, 2)
    cache.insert(SCOPE, [1, 2, 70, 71, 72])
    made = Proposer(cache, SCOPE, **settings)  # type: ignore[arg-type]
    made.append(history)
    return made


def test_the_own_history_comes_first() -> None:
    made = proposer([1, 2, 9, 9, 1, 2])
    assert made.propose() == [9, 9]
    assert made.source == "own"


def test_then_the_shared_cache() -> None:
    made = proposer([5, 1, 2])
    assert made.propose() == [70, 71]
    assert made.source == "shared"
    made.settle(2)
    assert made.propose() == [70, 71, 72]
    assert made.propose(1) == [70]
    assert made.propose(0) is None


def test_another_scope_gives_nothing() -> None:
    made = proposer([5, 1, 2])
    other = Proposer(made._cache, ("m", "t", "", "other"))
    other.append([5, 1, 2])
    assert other.propose() is None


def test_a_refused_copy_makes_a_pause_for_both_sources() -> None:
    made = proposer([5, 1, 2], backoff=MissBackoff(4))
    seen = []
    for _ in range(8):
        copy = made.propose()
        seen.append(copy)
        if copy is not None:
            made.settle(0)
    assert seen == [[70, 71], None, [70], None, None, [70], None, None]
    assert made.stats() == {
        "own_copies": 0,
        "shared_copies": 3,
        "proposed_tokens": 4,
        "accepted_tokens": 0,
        "paused": 5,
    }


def test_an_abandoned_copy_changes_nothing() -> None:
    made = proposer([5, 1, 2])
    assert made.propose() == [70, 71]
    made.abandon()
    made.settle(0)
    assert made.source is None
    assert made.propose() == [70, 71]


def test_only_what_was_proposed_can_be_accepted() -> None:
    made = proposer([5, 1, 2])
    made.propose()
    for accepted in (-1, 3):
        with pytest.raises(ConfigInvalid, match="expected 0 to 2"):
            made.settle(accepted)
    made.settle(1)
    assert made.stats()["accepted_tokens"] == 1


def test_a_finished_request_is_there_for_the_next() -> None:
    made = proposer([5, 1, 2, 8, 8])
    assert made.finish() > 0
    after = Proposer(made._cache, SCOPE)
    after.append([1, 2])
    assert after.propose() == [8, 8]
    alone = Proposer()
    alone.append([1, 2, 3] * 6)
    assert alone.finish() == 0
    assert alone.propose() == [1, 2], "eight tokens, the usual key, recur"


def test_settings_that_cannot_be() -> None:
    cache = SharedTokenCache(1 << 20, 1, 2)
    for arguments in ((cache, None), (None, SCOPE)):
        with pytest.raises(ConfigInvalid, match="given alone"):
            Proposer(*arguments)  # type: ignore[arg-type]
    with pytest.raises(ConfigInvalid, match="key_len is 0"):
        Proposer(key_len=0)
    with pytest.raises(TypeError, match="scope must be a tuple"):
        Proposer(cache, ("m", "t"))  # type: ignore[arg-type]


@pytest.mark.unsanitized  # another interpreter
def test_a_finalizer_may_ask_the_lookup_whose_answer_is_being_made() -> None:
    """The garbage collector runs where a list is made, and finalizers in it."""
    script = """
import gc, sys
from toktier.speculative import PromptLookup
made = PromptLookup(2)
made.append([1, 2, 3] * 4)
class Finalizer:
    def __init__(self):
        self.itself = self
    def __del__(self):
        made.append([1, 2, 3])
        made.propose(3)
gc.collect()
for call in (made.history, lambda: made.propose(3)) * 20:
    for allocations in range(1, 6):
        gc.disable()
        Finalizer()
        gc.set_threshold(gc.get_count()[0] + allocations)
        gc.enable()
        assert call()
gc.disable()
gc.collect()
print(len(made) == 12 + 3 * 200, made.history() == [1, 2, 3] * 204)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert (ran.stdout, ran.stderr) == ("True True\n", "")
