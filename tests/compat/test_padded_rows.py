"""Law: `pad` gives, field by field, what `pad` of `transformers.PreTrainedTokenizerFast` gives for the same rows, or
both refuse them; and it never changes what it is given. Data collators of the library take it as their tokenizer.

What needs the library says so (tests/support/transformers_site.py).
"""

from __future__ import annotations

import copy
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compat.calls import assert_same
from tests.support.material import SMALL_DIR
from tests.support.native_tokenizers import native_file
from tests.support.transformers_site import required_transformers
from toktier.compat.call_options import InvalidCall
from toktier.compat.transformers import FastTokenizer

LLAMA = SMALL_DIR / "llama_like.json"
TOKENS = {"pad_token": "<unk>", "mask_token": "</s>", "eos_token": "</s>"}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> FastTokenizer:
    return FastTokenizer(native_file(LLAMA, tmp_path_factory.mktemp("home-pad")), model_max_length=9, **TOKENS)


@pytest.fixture(scope="module")
def theirs() -> Any:
    found = required_transformers().PreTrainedTokenizerFast(tokenizer_file=str(LLAMA), model_max_length=9, **TOKENS)
    found.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True
    return found


_row = st.integers(0, 6).flatmap(
    lambda count: st.fixed_dictionaries(
        {"input_ids": st.lists(st.integers(3, 90), min_size=count, max_size=count)},
        optional={
            "attention_mask": st.lists(st.integers(0, 1), min_size=count, max_size=count),
            "token_type_ids": st.lists(st.integers(0, 2), min_size=count, max_size=count),
            "special_tokens_mask": st.lists(st.integers(0, 1), min_size=count, max_size=count),
            "labels": st.integers(0, 9),
        },
    )
)
_options = st.fixed_dictionaries(
    {},
    optional={
        "padding": st.sampled_from((True, False, "longest", "max_length", "do_not_pad")),
        "max_length": st.sampled_from((None, 0, 1, 4, 12, np.int64(5))),
        "pad_to_multiple_of": st.sampled_from((None, 1, 4, np.int64(3))),
        "padding_side": st.sampled_from((None, "left", "right")),
        "return_attention_mask": st.sampled_from((None, True, False)),
        "return_tensors": st.sampled_from((None, "np")),
    },
)


def shaped(rows: list[dict[str, Any]], how: str) -> Any:
    """The rows as a list, as a mapping of columns, as arrays of each row, or the first of them alone."""
    if how == "columns":
        return (
            {name: [row[name] for row in rows] for name in rows[0] if all(name in row for row in rows)} if rows else {}
        )
    if how == "arrays":
        return [{name: np.asarray(value) for name, value in row.items()} for row in rows]
    return rows[0] if how == "alone" and rows else rows


@pytest.mark.ci
def test_rows_are_padded_as_theirs(llama: FastTokenizer, theirs: Any) -> None:
    raised = [0, 0]

    @settings(max_examples=200, deadline=None)
    @given(
        rows=st.lists(_row, max_size=4),
        options=_options,
        how=st.sampled_from(("list", "columns", "arrays", "alone")),
        uniform=st.booleans(),
    )
    def law(rows: list[dict[str, Any]], options: dict[str, Any], how: str, uniform: bool) -> None:
        if uniform and rows:
            shared = set.intersection(*map(set, rows))
            rows = [{name: value for name, value in row.items() if name in shared} for row in rows]
        given = shaped(rows, how)
        kept = copy.deepcopy(given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = theirs.pad(copy.deepcopy(given), **options)
            except (ValueError, KeyError, AttributeError, AssertionError, TypeError, IndexError):
                raised[1] += 1
                with pytest.raises(InvalidCall):
                    llama.pad(given, **options)
                return
            raised[0] += 1
            found = llama.pad(given, **options)
        assert_same(found, expected)
        assert (found.backend, found.is_fast) == (None, False)
        assert str(given) == str(kept)

    law()
    assert min(raised) > 4, raised


@pytest.mark.ci
def test_results_of_calls_are_padded_as_theirs(llama: FastTokenizer, theirs: Any) -> None:
    texts = ["one two three", "", "four <s> 日本"]
    for kind in (None, "np"):
        for side in ("left", "right"):
            ours, other = (
                t.pad(
                    [t(text, verbose=False, return_length=True) for text in texts],
                    padding_side=side,
                    return_tensors=kind,
                )
                for t in (llama, theirs)
            )
            assert_same(ours, other)
            assert_same(ours[0:2], other[0:2])
            assert_same(llama.pad(llama(texts, verbose=False)), theirs.pad(theirs(texts)))


@pytest.mark.ci
def test_collators_of_the_library_take_it(llama: FastTokenizer, theirs: Any) -> None:
    library = required_transformers()
    rows = [llama(text) for text in ("one two three", "four", "five six")]
    plain = [dict(row) for row in rows]
    for options in ({}, {"pad_to_multiple_of": 4}, {"padding": "max_length", "max_length": 11}):
        made = (library.DataCollatorWithPadding(t, return_tensors="np", **options) for t in (llama, theirs))
        ours, other = (collator(copy.deepcopy(plain)) for collator in made)
        assert_same(ours, other)
    labelled = [{**row, "labels": row["input_ids"][:2]} for row in plain]
    made = (library.DataCollatorForTokenClassification(t, return_tensors="np") for t in (llama, theirs))
    ours, other = (collator(copy.deepcopy(labelled)) for collator in made)
    assert_same(ours, other)
    made = (library.DataCollatorForLanguageModeling(t, return_tensors="np", mlm=False) for t in (llama, theirs))
    ours, other = (collator(copy.deepcopy(plain)) for collator in made)
    assert_same(ours, other)


def test_rows_that_do_not_fit_together_are_refused(llama: FastTokenizer) -> None:
    for rows, message in (
        ([], "holds no rows"),
        ("text", "holds no rows"),
        ([{"input_ids": [1]}, [2]], "holds no rows"),
        ({"ids": [1]}, "no input_ids"),
        ([{"input_ids": [1], "labels": 1}, {"input_ids": [2]}], "row 1 has no labels"),
        ({"input_ids": [[1], [2]], "labels": [1]}, "labels has 1 rows"),
        ({"input_ids": ["a", "b"]}, "holds a str"),
        ({"input_ids": np.asarray([1, 2])}, "holds a int64"),
    ):
        with pytest.raises(InvalidCall, match=message):
            llama.pad(rows)
    for options in ({"padding": None}, {"padding": "x"}, {"return_tensors": "tf"}, {"padding_side": "up"}):
        with pytest.raises(InvalidCall, match="expected one of"):
            llama.pad([{"input_ids": [5]}], **options)


def test_masks_of_more_dimensions_are_stacked(llama: FastTokenizer) -> None:
    masks = [np.ones((1, 2, 2)), np.zeros((1, 2, 2))]
    found = llama.pad({"input_ids": [[5], [6, 7]], "attention_mask": masks})
    assert found["input_ids"] == [[5, llama.pad_token_id], [6, 7]]
    assert found["attention_mask"].shape == (2, 1, 2, 2)
    assert (found["attention_mask"][0] == masks[0]).all()


def test_floats_are_floats_of_torch(llama: FastTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(from_numpy=lambda array: array))
    found = llama.pad({"input_ids": [[5], [6, 7]], "labels": [0.5, 1.0]}, return_tensors="pt")
    assert (found["labels"].dtype, found["input_ids"].dtype) == (np.float32, np.int64)
    with pytest.raises(InvalidCall, match="no tensor holds them"):
        llama.pad({"input_ids": [[5], [6, 7]], "names": ["a", "b"]}, return_tensors="pt")


def test_without_a_padding_token_nothing_is_padded(tmp_path: Path) -> None:
    bare = FastTokenizer(native_file(LLAMA, tmp_path))
    with pytest.raises(InvalidCall, match="no padding token"):
        bare.pad([{"input_ids": [5]}])
    assert bare.pad([{"input_ids": [5]}, {"input_ids": []}], padding=False)["attention_mask"] == [[1], []]
