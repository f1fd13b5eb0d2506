"""What a slot holds, and how much of it is certain."""

from __future__ import annotations

from tests.router.token_prompts import after, unrelated
from toktier.router.slot_content import Content, after_request, of_prompt
from toktier.router.token_ids import as_ids


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
