"""Texts and valid keywords of calls in the shape of `transformers`, for laws; and results compared field by field."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

PIECES = (
    "hello", " world", "\n", "é", "日本", "  ", "1234", "don't", "🙂", "<|endoftext|>", "</s>", "<s>", "<mask>",
    "<think>", "\u0301", "x" * 30, ".", "ﬁ", "A\u030a", "<word>", "<right>", "\t",
)  # fmt: skip

texts = st.one_of(st.lists(st.sampled_from(PIECES), max_size=24).map("".join), st.text(max_size=12))
batches = st.lists(texts, min_size=1, max_size=4)

_flag = st.booleans()
_some_flag = st.sampled_from((None, True, False))
_any_keyword: dict[str, st.SearchStrategy[Any]] = {
    "padding": st.sampled_from((True, False, "longest", "max_length", "do_not_pad")),
    "max_length": st.sampled_from((1, 2, 3, 5, 8, 16, 64)),
    "pad_to_multiple_of": st.sampled_from((1, 4, 8)),
    "padding_side": st.sampled_from(("left", "right")),
    "return_overflowing_tokens": _flag,
    "return_special_tokens_mask": _flag,
    "return_offsets_mapping": _flag,
    "return_length": _flag,
    "return_token_type_ids": _some_flag,
    "return_attention_mask": _some_flag,
    "return_tensors": st.sampled_from((None, "np")),
    "split_special_tokens": _flag,
    "add_special_tokens": _flag,
}


@st.composite
def keywords(draw: st.DrawFn, truncations: tuple[Any, ...] = (True, False, "longest_first", "only_first", None)) -> Any:
    """Any subset of the keywords. Contradictory ones among them are for both sides to refuse."""
    chosen: dict[str, Any] = draw(st.fixed_dictionaries({}, optional=_any_keyword))
    if draw(_flag):
        chosen["truncation"] = draw(st.sampled_from(truncations))
        chosen["stride"] = draw(st.sampled_from((0, 0, 1, 2)))
    return chosen


def same(ours: Any, theirs: Any) -> bool:
    """Equal, and of one type: lists, or arrays of one dtype and shape; of ragged ones every row."""
    if isinstance(theirs, np.ndarray):
        if not isinstance(ours, np.ndarray) or (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            return False
        if theirs.dtype == object:
            return all(same(a, b) for a, b in zip(ours, theirs, strict=True))
        return bool((ours == theirs).all())
    return type(ours) is type(theirs) and bool(ours == theirs)


def assert_same(ours: Any, theirs: Any) -> None:
    """Same keys in the same order, each column the same."""
    assert list(ours) == list(theirs)
    for name in theirs:
        assert same(ours[name], theirs[name]), (name, ours[name], theirs[name])
