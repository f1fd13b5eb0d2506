"""Laws of native/speculative: the shared cache equals a model that forgets only what the ring overwrites, whatever is
inserted and asked; the look-up in the own history equals a search of all of it, whatever is appended and taken back.
"""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from toktier.speculative import PromptLookup, SharedTokenCache

SCOPE = (0, 0, 0, 0)
MARKER = None


class ModelScope:
    """Every ring token ever written, and a dictionary in place of the slots."""

    def __init__(self, key_len: int, ring: int) -> None:
        self.key_len, self.ring = key_len, ring
        self.log: list[int | None] = [MARKER]
        self.latest: dict[tuple[int, ...], int] = {}

    def find(self, gram: tuple[int, ...]) -> int:
        at = self.latest.get(gram, 0)
        return at if at and at - self.key_len + self.ring >= len(self.log) else 0

    def insert(self, document: list[int]) -> int:
        before, run, repeats = len(self.log), False, 0
        document = document[-(self.ring - 1) :]
        for end in range(self.key_len, len(document)):
            gram = tuple(document[end - self.key_len : end])
            at = self.find(gram)
            known = at > 0 and self.log[at] == document[end]
            if known and not run:
                continue
            if not run:
                self.log += gram
            repeats = repeats + 1 if run and known else 0
            run = repeats < 32
            if run:
                self.latest[gram] = len(self.log)
            self.log.append(document[end] if run else MARKER)
        if run:
            self.log.append(MARKER)
        return len(self.log) - before

    def propose(self, history: list[int], max_len: int) -> list[int] | None:
        at = self.find(tuple(history[-self.key_len :])) if len(history) >= self.key_len else 0
        copy: list[int] = []
        while at and len(copy) < max_len and at < len(self.log) and (token := self.log[at]) is not MARKER:
            copy.append(token)
            at += 1
        return copy or None


TOKENS = st.lists(st.integers(0, 2), max_size=120) | st.integers(0, 5).flatmap(
    lambda start: st.integers(0, 1500).map(lambda n: [start + i % 300 for i in range(n)])
)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 4),
    st.sampled_from([6144, 8191, 12288]),
    st.lists(st.tuples(TOKENS, TOKENS, st.integers(0, 60)), max_size=12),
)
def test_the_cache_is_the_model(key_len: int, budget: int, calls: list[tuple[list[int], list[int], int]]) -> None:
    cache = SharedTokenCache(budget, 1, key_len)
    model = ModelScope(key_len, cache.ring_tokens)
    for document, history, max_len in calls:
        assert cache.insert(SCOPE, document) == model.insert(document)
        for asked in (history, document[: len(history)]):
            assert cache.propose(SCOPE, asked, max_len) == model.propose(asked, max_len)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5), st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=40), st.integers(0, 30)), max_size=12)
)
def test_the_own_history_is_searched_whole(key_len: int, steps: list[tuple[list[int], int]]) -> None:
    lookup, history = PromptLookup(key_len), array("I")
    for tokens, taken_back in steps:
        lookup.append(tokens)
        history.extend(tokens)
        del history[max(0, len(history) - taken_back) :]
        lookup.truncate(len(history))
        assert lookup.history() == history.tolist()
        key, expected = history[len(history) - key_len :], None
        for at in range(len(history) - 1, key_len - 1, -1):
            if history[at - key_len : at] == key and len(history) > key_len:
                expected = history[at:].tolist()
                break
        assert lookup.propose(1000) == expected
