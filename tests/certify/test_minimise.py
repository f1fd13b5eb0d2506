"""The shortest text that still differs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toktier.certify.minimise import minimise


@given(before=st.text("abc"), middle=st.text("abc"), after=st.text("abc"))
def test_two_distant_causes_are_all_that_is_left(before: str, middle: str, after: str) -> None:
    text = f"{before}X{middle}Y{after}"
    assert minimise(text, lambda t: "X" in t and "Y" in t[t.index("X") :]) == "XY"


@given(st.text("ab", min_size=1), st.integers(1, 6))
def test_no_code_point_can_be_left_out(text: str, least: int) -> None:
    def differs(t: str) -> bool:
        return t.count("a") >= least

    if differs(text):
        assert minimise(text, differs) == "a" * least


def test_the_bound_ends_the_search_with_something_that_differs() -> None:
    calls = 0

    def differs(text: str) -> bool:
        nonlocal calls
        calls += 1
        return text.count("x") > 40

    short = minimise("x" * 5000, differs, 25)
    assert calls == 25
    assert short.count("x") > 40
    assert minimise("q", lambda _: True) == "q"
