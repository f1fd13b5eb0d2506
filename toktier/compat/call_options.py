"""What one call in the shape of `transformers` asks for: its keywords, resolved to what is done.

The rules that turn `padding`, `truncation` and `max_length` into a strategy are those of transformers 5, warnings
included. Not here: doing it (`composed_rows`, `reference_calls`).
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from toktier.errors import ConfigInvalid, ToktierWarning

NO_LIMIT = int(1e30)  # model_max_length of a model that says none
_LIMITS_FROM = int(1e20)  # a model_max_length above this is none
PADDINGS = ("longest", "max_length", "do_not_pad")
TRUNCATIONS = ("longest_first", "only_first", "only_second", "do_not_truncate")
SIDES = ("right", "left")
TENSORS = ("np", "pt")
INPUT_IDS, TYPE_IDS, ATTENTION_MASK = "input_ids", "token_type_ids", "attention_mask"
SPECIAL_MASK, OFFSETS, LENGTH = "special_tokens_mask", "offset_mapping", "length"
SAMPLE_OF_ROW = "overflow_to_sample_mapping"


class InvalidCall(ConfigInvalid, ValueError):
    """Arguments that contradict each other or that the tokenizer cannot follow; a ValueError as in transformers."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """`truncation`: a strategy, None for none. `padding`: "longest", "max_length" or None. `columns`: keys of the
    result, in their order, but for SAMPLE_OF_ROW. `max_length`, `stride`: tokens."""

    add_special_tokens: bool = True
    plain: bool = False
    split_into_words: bool = False
    truncation: str | None = None
    padding: str | None = None
    max_length: int | None = None
    stride: int = 0
    multiple_of: int | None = None
    truncation_side: str = "right"
    padding_side: str = "right"
    pad_token: str = ""
    pad_id: int = 0
    pad_type_id: int = 0
    columns: tuple[str, ...] = (INPUT_IDS, ATTENTION_MASK)
    overflow: bool = False
    tensors: str | None = None


def strategies(
    padding: bool | str,
    truncation: bool | str | None,
    max_length: int | None,
    model_max_length: int,
    *,
    verbose: bool = True,
) -> tuple[str | None, str | None, int | None]:
    """(padding, truncation, max_length) of a call; strategies are None where nothing is done. Raises InvalidCall."""
    padding, truncation = _plain(padding), _plain(truncation)
    if not isinstance(model_max_length, (int, float)):
        model_max_length = _whole("model_max_length", model_max_length, 0)
    if max_length is not None and padding is False and truncation is None:
        truncation = "longest_first"
    if padding is True:
        if verbose and max_length is not None and truncation in (None, False, "do_not_truncate"):
            text = "max_length is ignored where padding is True and nothing is cut; padding='max_length' pads to it"
            warnings.warn(text, ToktierWarning, stacklevel=5)
        padding = "longest"
    pad = _one_of(PADDINGS, "padding", "do_not_pad" if padding is False else padding)
    if truncation is None or isinstance(truncation, bool):
        truncation = "longest_first" if truncation else "do_not_truncate"
    cut = _one_of(TRUNCATIONS, "truncation", truncation)
    if max_length is None and (pad == "max_length" or cut != "do_not_truncate"):
        if model_max_length <= _LIMITS_FROM:
            max_length = model_max_length
        else:
            pad, cut = "do_not_pad" if pad == "max_length" else pad, "do_not_truncate"
    return None if pad == "do_not_pad" else pad, None if cut == "do_not_truncate" else cut, max_length


def checked(options: CallOptions) -> CallOptions:
    """`options` with integers and flags of Python, where each can be followed, used by the call or not. Raises
    InvalidCall."""
    for name in ("truncation_side", "padding_side"):
        _one_of(SIDES, name, getattr(options, name))
    length, multiple = options.max_length, options.multiple_of
    options = replace(
        options,
        add_special_tokens=flag("add_special_tokens", options.add_special_tokens),
        plain=flag("split_special_tokens", options.plain),
        split_into_words=flag("is_split_into_words", options.split_into_words),
        max_length=None if length is None else _whole("max_length", length, 0),
        stride=_whole("stride", options.stride, 0),
        multiple_of=None if multiple is None else _whole("pad_to_multiple_of", multiple, 1),
        tensors=tensor_kind(options.tensors),
    )
    length, multiple = options.max_length, options.multiple_of
    if options.truncation and options.padding and multiple and length is not None and length % multiple:
        raise _invalid("max_length", length, f"a multiple of pad_to_multiple_of ({multiple}) where both are given")
    return options


def tensor_kind(value: Any) -> str | None:
    """The kind that `return_tensors` names. Raises InvalidCall."""
    return None if value is None else _one_of(TENSORS, "return_tensors", _plain(value))


def columns(
    input_names: Sequence[str],
    type_ids: bool | None,
    attention_mask: bool | None,
    special_mask: bool,
    offsets: bool,
    length: bool,
) -> tuple[str, ...]:
    """Keys of a result; None for `type_ids` and `attention_mask` follows the model's inputs."""
    wanted = (
        (INPUT_IDS, True),
        (TYPE_IDS, TYPE_IDS in input_names if type_ids is None else type_ids),
        (ATTENTION_MASK, ATTENTION_MASK in input_names if attention_mask is None else attention_mask),
        (SPECIAL_MASK, special_mask),
        (OFFSETS, offsets),
        (LENGTH, length),
    )
    return tuple(name for name, yes in wanted if yes)


def width_of(longest: int, options: CallOptions) -> int:
    """Tokens that rows are padded to; `longest`: of the rows, overflowing ones not counted. 0: nothing is padded."""
    if options.padding is None:
        return 0
    width = longest if options.padding == "longest" else options.max_length or 0
    multiple = options.multiple_of or 1
    return -(-width // multiple) * multiple


def _plain(value: Any) -> Any:
    """The string that an enumeration of transformers holds."""
    return getattr(value, "value", value)


def _whole(name: str, value: Any, least: int) -> int:
    """Of an int, or of another integer such as numpy's."""
    try:
        found = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = None
    if found is None or found < least:
        raise _invalid(name, value, f"an integer of {least} or more")
    return found


def flag(name: str, value: Any) -> bool:
    """Of a bool, or of numpy's: what is merely true or false is refused, as an argument in the wrong place would be."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise _invalid(name, value, "True or False")
    return bool(value)


def _one_of(known: tuple[str, ...], name: str, value: Any) -> str:
    if isinstance(value, str) and value in known:
        return value
    raise _invalid(name, value, f"one of {', '.join(known)}")


def _invalid(name: str, value: object, expected: str) -> InvalidCall:
    return InvalidCall(
        f"{name} is {value!r}: expected {expected}", details={"argument": name}, remedy=f"correct {name}"
    )
