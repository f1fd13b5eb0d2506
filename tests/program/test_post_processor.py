"""Templates, trimmed offsets, truncation and padding: what is read and how it is laid out."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from tests.support.bad_tokenizers import BYTE_LEVEL, PADDING, TEMPLATE, TRUNCATION
from toktier.errors import ProgramUnsupported
from toktier.program.layout import NONE, Conf
from toktier.program.length_limits import Padding, Truncation, length_conf, read_padding, read_truncation
from toktier.program.post_processor import PostProcessor, read_post_processor

X = ((0, "a"),)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, PostProcessor()),
        ({"type": "Sequence", "processors": []}, PostProcessor()),
        (TEMPLATE, PostProcessor(before=X)),
        ({"type": "Sequence", "processors": [TEMPLATE]}, PostProcessor(before=X)),
        (BYTE_LEVEL | {"trim_offsets": False}, PostProcessor()),
        (BYTE_LEVEL, PostProcessor(trim_offsets=True)),
        (BYTE_LEVEL | {"add_prefix_space": True}, PostProcessor(trim_offsets=True, add_prefix_space=True)),
        ({"type": "Sequence", "processors": [BYTE_LEVEL, TEMPLATE]}, PostProcessor(before=X, trim_offsets=True)),
        (
            {"type": "Sequence", "processors": [TEMPLATE, BYTE_LEVEL | {"trim_offsets": False}]},
            PostProcessor(before=X),
        ),
    ],
)
def test_reading(value: Any, expected: PostProcessor) -> None:
    assert read_post_processor(value) == expected


def test_a_template_around_the_text() -> None:
    pieces = [{"SpecialToken": {"id": name, "type_id": 0}} for name in ("X", "E", "Y")]
    template = TEMPLATE | {
        "single": [pieces[2], *pieces[:2], {"Sequence": {"id": "A", "type_id": 0}}, pieces[1], pieces[0]],
        "special_tokens": {
            "X": {"id": "X", "ids": [0, 1], "tokens": ["a", "b"]},
            "E": {"id": "E", "ids": [], "tokens": []},
            "Y": {"id": "other", "ids": [2], "tokens": ["c"]},
        },
    }
    read = read_post_processor(template)
    assert read.before == ((2, "c"), (0, "a"), (1, "b"))
    assert read.after == ((0, "a"), (1, "b"))
    assert read.special_count == 5


def test_a_template_is_counted_before_it_is_laid_out() -> None:
    special = {"SpecialToken": {"id": "X", "type_id": 0}}
    document = TEMPLATE | {
        "single": [*[special] * 20_000, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"X": {"id": "X", "ids": [0] * 20_000, "tokens": ["a"] * 20_000}},
    }
    tracemalloc.start()
    with pytest.raises(ProgramUnsupported, match="more than 4096 ids"):
        read_post_processor(document)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20  # laid out it would be 400 million pairs


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {Conf.TRUNC_ON: 1, Conf.TRUNC_MAX: 8, Conf.TRUNC_LEFT: 0, Conf.TRUNC_STRIDE: 0}),
        ({"direction": "Left", "stride": 3}, {Conf.TRUNC_LEFT: 1, Conf.TRUNC_STRIDE: 3}),
        ({"strategy": "OnlyFirst"}, {Conf.TRUNC_STRIDE: 0}),
        ({"strategy": "OnlySecond", "stride": 3}, {Conf.TRUNC_STRIDE: NONE}),
        ({"max_length": 2**64 - 1}, {Conf.TRUNC_MAX: 2**32 - 1}),
        ({"stride": 2**40}, {Conf.TRUNC_STRIDE: 2**32 - 1}),
    ],
)
def test_truncation(change: dict[str, Any], expected: dict[Conf, int]) -> None:
    conf = length_conf(read_truncation(TRUNCATION | change), None)
    assert {field: conf[field] for field in expected} == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {Conf.PAD_MODE: 1, Conf.PAD_FIXED: 0, Conf.PAD_MULTIPLE: 0, Conf.PAD_ID: 0, Conf.PAD_LEFT: 0}),
        ({"strategy": {"Fixed": 16}, "direction": "Left"}, {Conf.PAD_MODE: 2, Conf.PAD_FIXED: 16, Conf.PAD_LEFT: 1}),
        ({"pad_to_multiple_of": 4}, {Conf.PAD_MULTIPLE: 4}),
        ({"pad_id": 7}, {Conf.PAD_ID: 7}),
    ],
)
def test_padding(change: dict[str, Any], expected: dict[Conf, int]) -> None:
    conf = length_conf(None, read_padding(PADDING | change))
    assert {field: conf[field] for field in expected} == expected


def test_none_is_none() -> None:
    assert read_truncation(None) is read_padding(None) is None
    assert length_conf(None, None) == {}


def test_json_forms_tell_values_apart() -> None:
    truncations = [Truncation(8, 0, False, False), Truncation(9, 0, False, False), Truncation(8, 1, False, False)]
    truncations += [Truncation(8, 0, True, False), Truncation(8, 0, False, True)]
    assert len({str(each.to_json()) for each in truncations}) == 5
    paddings = [Padding(None, False, 0, 0, 0, "a"), Padding(4, False, 0, 0, 0, "a"), Padding(None, True, 0, 0, 0, "a")]
    paddings += [Padding(None, False, 2, 0, 0, "a"), Padding(None, False, 0, 1, 0, "a")]
    assert len({str(each.to_json()) for each in paddings}) == 5
