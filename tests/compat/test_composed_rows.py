"""Law: rows that are composed from the ids of the engine are the reference's rows, cut, framed and padded by itself."""

from __future__ import annotations

import functools
import itertools
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.compat.calls import assert_same, batches, keywords
from tests.support.material import SMALL_DIR
from tests.support.native_tokenizers import native_file
from toktier.compat.composed_rows import windows
from toktier.compat.transformers import FastTokenizer

PAD = {"gpt2_like": "<|endoftext|>", "gemma_like": "</s>", "o200k_like": "<|im_end|>", "llama_like": "<unk>"}
ALL = {
    "return_special_tokens_mask": True,
    "return_offsets_mapping": True,
    "return_token_type_ids": True,
    "return_length": True,
    "return_overflowing_tokens": True,
}


@functools.cache
def pair_of(name: str, home: Path) -> tuple[FastTokenizer, Tokenizer]:
    path = SMALL_DIR / f"{name}.json"
    return FastTokenizer(native_file(path, home), pad_token=PAD[name]), Tokenizer.from_file(str(path))


def by_reference(reference: Tokenizer, texts: list[str], pad: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """The columns of `ALL`, by the settings of a reference object. `wanted`: limit, stride, side, padding, width,
    multiple, pad_side, special."""
    reference.no_truncation()
    reference.no_padding()
    if wanted["limit"] is not None:
        reference.enable_truncation(wanted["limit"], stride=wanted["stride"], direction=wanted["side"])
    if wanted["padding"]:
        reference.enable_padding(
            direction=wanted["pad_side"],
            pad_id=reference.token_to_id(pad),
            pad_token=pad,
            length=wanted["width"],
            pad_to_multiple_of=wanted["multiple"],
        )
    rows, samples = [], []
    for sample, encoding in enumerate(reference.encode_batch(texts, add_special_tokens=wanted["special"])):
        parts = [encoding, *encoding.overflowing]
        rows += parts
        samples += [sample] * len(parts)
    return {
        "input_ids": [row.ids for row in rows],
        "token_type_ids": [row.type_ids for row in rows],
        "attention_mask": [row.attention_mask for row in rows],
        "special_tokens_mask": [row.special_tokens_mask for row in rows],
        "offset_mapping": [row.offsets for row in rows],
        "length": [len(row.ids) for row in rows],
        "overflow_to_sample_mapping": samples,
    }


@pytest.mark.parametrize("name", sorted(PAD))
def test_rows_are_those_of_the_reference(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    ours, reference = pair_of(name, tmp_path_factory.getbasetemp() / "compat")

    @settings(max_examples=40, deadline=None)
    @given(
        texts=batches,
        limit=st.sampled_from((None, 8, 9, 12, 40)),  # room for the template and more than the stride
        stride=st.integers(0, 3),
        side=st.sampled_from(("left", "right")),
        padding=st.sampled_from((False, "longest", "max_length")),
        multiple=st.sampled_from((None, 1, 3)),
        pad_side=st.sampled_from(("left", "right")),
        special=st.booleans(),
    )
    def law(texts: list[str], padding: Any, multiple: int | None, limit: int | None, **wanted: Any) -> None:
        if padding and multiple and limit:
            limit -= limit % multiple
        width = (limit or 12) if padding == "max_length" else None
        wanted |= {"padding": padding, "multiple": multiple, "limit": limit, "width": width}
        ours.truncation_side = wanted["side"]
        found = ours(
            texts,
            padding=padding,
            truncation=limit is not None,
            max_length=width if limit is None else limit,
            stride=wanted["stride"] if limit else 0,
            pad_to_multiple_of=multiple if padding else None,
            padding_side=wanted["pad_side"],
            add_special_tokens=wanted["special"],
            **ALL,
        )
        # Trimmed offsets of parts of a text are the reference's: nothing else may be.
        assert found.backend == ("hf" if name == "gpt2_like" and limit else "fast_cpu")
        assert_same(found.data, by_reference(reference, texts, PAD[name], wanted))

    law()


@settings(max_examples=60, deadline=None)
@given(texts=batches, options=keywords(truncations=(True, None)))
def test_arrays_hold_what_lists_hold(tmp_path_factory: pytest.TempPathFactory, texts: Any, options: Any) -> None:
    ours, _ = pair_of("llama_like", tmp_path_factory.getbasetemp() / "compat")
    options = {**options, "max_length": 8, "return_tensors": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lists, arrays = ours(texts, **options), ours(texts, **{**options, "return_tensors": "np"})
    assert arrays.backend == lists.backend == "fast_cpu"
    assert list(arrays) == list(lists)
    for name, column in arrays.items():
        rows = (
            [[tuple(x) if name == "offset_mapping" else x for x in row] for row in column.tolist()]
            if (column.dtype != object and column.ndim > 1)
            else [row.tolist() if hasattr(row, "tolist") else row for row in column]
        )
        if name == "offset_mapping":
            rows = [[tuple(pair) for pair in row] for row in rows]
        assert rows == lists[name], name


@given(count=st.integers(0, 60), limit=st.integers(1, 12), data=st.data(), side=st.sampled_from(("left", "right")))
def test_parts_cover_the_ids_and_share_the_stride(count: int, limit: int, data: st.DataObject, side: str) -> None:
    stride = data.draw(st.integers(0, limit - 1))
    parts = list(windows(count, limit, stride, side))
    assert all(0 <= end - begin <= limit for begin, end in parts)
    assert {i for begin, end in parts for i in range(begin, end)} == set(range(count))
    ordered = parts if side == "right" else [(count - end, count - begin) for begin, end in parts]
    assert all(b[0] == a[1] - stride for a, b in itertools.pairwise(ordered))
