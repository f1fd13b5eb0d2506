"""What a slot holds: common prefixes, and how much is certain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.router.token_prompts import after, unrelated
from toktier.router.slot_content import Content, after_request, as_ids, of_prompt, shared_prefix

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
    assert shared_prefix(a, b, start=length) == length
    assert shared_prefix(a, b, start=length - 1) == length


def test_ids_are_copied() -> None:
    buffer = np.arange(1000, dtype=np.uint32)
    ids = as_ids(buffer[10:20])
    buffer[:] = 7
    assert ids.tolist() == list(range(10, 20))
    assert ids.base is None


def test_a_slot_holds_prompt_and_generated_but_the_last() -> None:
    """D3: 100 tokens and 8 generated are 107."""
    prompt = unrelated(1, 100)
    content = after_request(prompt, as_ids(range(8)), as_ids([]), sure=True, exact=True, n_ctx=1024)
    assert content.ids.tolist() == [*prompt.tolist(), *range(7)]
    assert (content.sure, content.prompt, content.exact) == (107, 100, True)


def test_guessed_tokens_are_not_certain() -> None:
    prompt = unrelated(1, 10)
    content = after_request(prompt, as_ids([1, 2]), as_ids([3, 4]), sure=True, exact=True, n_ctx=1024)
    assert content.ids.tolist() == [*prompt.tolist(), 1, 2, 3]
    assert (content.sure, content.exact) == (12, False)


def test_of_a_prompt_that_the_upstream_made_itself_nothing_is_certain() -> None:
    content = after_request(unrelated(1, 10), as_ids([1]), as_ids([]), sure=False, exact=True, n_ctx=1024)
    assert (len(content.ids), content.sure, content.exact) == (10, 0, False)


def test_a_slot_holds_no_more_than_its_context() -> None:
    content = after_request(unrelated(1, 10), as_ids(range(20)), as_ids([]), sure=True, exact=True, n_ctx=16)
    assert (len(content.ids), content.sure) == (16, 16)
    assert len(of_prompt(unrelated(1, 20), sure=True, n_ctx=16).ids) == 16


def test_of_two_contents_what_both_begin_with_is_certain() -> None:
    common = unrelated(1, 50)
    one = of_prompt(after(common, [1, 2, 3]), sure=True, n_ctx=1024)
    other = of_prompt(after(common, [4]), sure=True, n_ctx=1024)
    assert one.doubted(other).sure == 50
    assert one.doubted(Content(other.ids, 20, 51, exact=False)).sure == 20
    assert one.doubted(None).sure == 0
    assert one.doubted(one).sure == 53
    assert not one.doubted(one).exact


def test_the_same_prompt_again_goes_on_from_it() -> None:
    content = of_prompt(unrelated(1, 100), sure=True, n_ctx=1024)
    assert content.is_continued_by(99)  # all of it but the last token, which is evaluated in any case
    assert not content.is_continued_by(98)
    assert not of_prompt(unrelated(1, 1), sure=True, n_ctx=1024).is_continued_by(0)
