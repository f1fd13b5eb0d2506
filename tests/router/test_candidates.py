"""Similar prompts by cosine: exact, in order, and whatever is added and removed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toktier.router.candidates import BruteForceIndex, Vector


def at_cosine(cosine: float) -> Vector:
    return np.array([cosine, np.sqrt(1 - cosine**2)], dtype=np.float32)


TO = np.array([1, 0], dtype=np.float32)


def test_within_five_percent_the_longer_prompt_comes_first() -> None:
    """D9."""
    index = BruteForceIndex[str](2, 10)
    index.add("short", at_cosine(1.0), 12)
    index.add("long", at_cosine(0.951), 400)
    assert [candidate.key for candidate in index.search(TO, 2)] == ["long", "short"]
    index.add("long", at_cosine(0.949), 400)
    assert [candidate.key for candidate in index.search(TO, 2)] == ["short", "long"]


def test_outside_the_more_similar_comes_first() -> None:
    index = BruteForceIndex[int](2, 10)
    for number, cosine in enumerate((0.5, 0.9, 0.7, -0.3)):
        index.add(number, at_cosine(cosine), 1000 * number)
    found = index.search(TO, 10)
    assert [candidate.key for candidate in found] == [1, 2, 0, 3]
    assert [candidate.score for candidate in found] == pytest.approx([0.9, 0.7, 0.5, -0.3], abs=1e-6)
    assert [candidate.key for candidate in index.search(TO, 2)] == [1, 2]
    assert index.search(TO, 0) == []


def test_length_of_a_vector_does_not_count() -> None:
    index = BruteForceIndex[str](2, 10)
    index.add("large", at_cosine(0.5) * 1000, 1)
    index.add("small", at_cosine(0.9) / 1000, 1)
    assert index.search(TO * 7, 1) == [("small", pytest.approx(0.9), 1)]


def test_a_full_index_drops_the_oldest() -> None:
    index = BruteForceIndex[int](2, 3)
    for number in range(5):
        index.add(number, at_cosine(0.1 * number), 1)
    index.add(3, at_cosine(0.9), 1)  # added anew, it is the youngest
    index.add(9, at_cosine(0.0), 1)
    index.add(10, at_cosine(0.0), 1)
    assert sorted(candidate.key for candidate in index.search(TO, 9)) == [3, 9, 10]
    assert len(index) == 3


def test_what_has_no_direction_is_not_kept() -> None:
    index = BruteForceIndex[str](2, 3)
    index.add("a", TO, 1)
    for vector in ([0, 0], [np.nan, 1], [np.inf, 1]):
        index.add("b", np.array(vector, dtype=np.float32), 1)
        assert index.search(np.array(vector, dtype=np.float32), 3) == []
    assert len(index) == 1
    index.add("a", np.zeros(2, dtype=np.float32), 1)  # what it was is over
    assert len(index) == 0
    assert index.search(TO, 3) == []


def test_vectors_of_another_length_are_refused() -> None:
    index = BruteForceIndex[str](2, 3)
    with pytest.raises(ValueError, match="shape"):
        index.add("a", np.ones(3, dtype=np.float32), 1)
    for dims, capacity in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="expected 1 or more"):
            BruteForceIndex[str](dims, capacity)


STEPS = st.lists(
    st.tuples(st.integers(0, 6), st.lists(st.integers(-3, 3), min_size=3, max_size=3), st.integers(1, 9))
    | st.integers(0, 6),
    max_size=30,
)


@given(STEPS, st.lists(st.integers(-3, 3), min_size=3, max_size=3).filter(any), st.integers(1, 8))
def test_an_index_finds_what_a_list_of_vectors_finds(
    steps: list[tuple[int, list[int], int] | int], asked: list[int], k: int
) -> None:
    index, kept = BruteForceIndex[int](3, 4), dict[int, tuple[Vector, int]]()
    for step in steps:
        if isinstance(step, int):
            index.remove(step)
            kept.pop(step, None)
            continue
        key, numbers, tokens = step
        vector = np.array(numbers, dtype=np.float32)
        index.add(key, vector, tokens)
        kept.pop(key, None)
        if any(numbers):
            if len(kept) == 4:
                del kept[next(iter(kept))]
            kept[key] = (vector / np.linalg.norm(vector), tokens)
    query = np.array(asked, dtype=np.float32) / np.float32(np.linalg.norm(asked))
    found = index.search(np.array(asked, dtype=np.float32), k)
    scores = {key: float(vector @ query) for key, (vector, _) in kept.items()}
    assert len(found) == min(k, len(kept))
    assert len({candidate.key for candidate in found}) == len(found)
    for candidate in found:
        assert candidate.tokens == kept[candidate.key][1]
        assert candidate.score == pytest.approx(scores[candidate.key], abs=1e-5)
    if found and max(scores.values()) > 1e-5:
        best = max(scores.values())
        near = [key for key, score in scores.items() if score >= 0.95 * best + 1e-5]
        assert found[0].tokens >= max(kept[key][1] for key in near)
        assert found[0].score >= 0.95 * best - 1e-5
