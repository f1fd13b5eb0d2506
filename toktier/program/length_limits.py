"""Truncation and padding stored in a tokenizer.json, typed, and their CONF fields. What they do: native/engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toktier.errors import ProgramUnsupported
from toktier.program.json_fields import MAX_U32, MAX_U64, Fields, integer
from toktier.program.layout import NONE, Conf

MAX_PADDED = 1 << 24  # ids; a row padded to more is a mistake or an attack
_DIRECTIONS = ("Left", "Right")


@dataclass(frozen=True)
class Truncation:
    """`only_second`: the reference refuses every single text that is too long."""

    max_length: int
    stride: int
    left: bool
    only_second: bool

    def to_json(self) -> dict[str, Any]:
        """For `inspect` and the fingerprint."""
        limited = min(self.max_length, MAX_U32)
        stride = min(self.stride, MAX_U32)
        return {"max_length": limited, "stride": stride, "left": self.left, "only_second": self.only_second}


@dataclass(frozen=True)
class Padding:
    """`fixed`: a length, or None for the longest of the batch. `multiple`: 0 or the divisor of padded lengths."""

    fixed: int | None
    left: bool
    multiple: int
    id: int
    type_id: int
    token: str

    def to_json(self) -> dict[str, Any]:
        """For `inspect` and the fingerprint."""
        return {
            "fixed": self.fixed,
            "left": self.left,
            "multiple": self.multiple,
            "id": self.id,
            "type_id": self.type_id,
            "token": self.token,
        }


def read_truncation(value: Any, path: str = "truncation") -> Truncation | None:
    """Raises NotATokenizer for what the reference cannot load, ProgramUnsupported for unknown fields."""
    if value is None:
        return None
    fields = Fields(value, path)
    strategy = fields.choice("strategy", ("LongestFirst", "OnlyFirst", "OnlySecond"))
    truncation = Truncation(
        max_length=fields.integer("max_length", MAX_U64),
        stride=fields.integer("stride", MAX_U64),
        left=fields.choice("direction", _DIRECTIONS, "Right") == "Left",
        only_second=strategy == "OnlySecond",
    )
    fields.done()
    return truncation


def read_padding(value: Any, path: str = "padding") -> Padding | None:
    """Raises NotATokenizer for what the reference cannot load, ProgramUnsupported for unknown fields and long rows."""
    if value is None:
        return None
    fields = Fields(value, path)
    strategy = fields.take("strategy")
    fixed: int | None = None
    if strategy != "BatchLongest":
        choice = Fields(strategy, fields.place("strategy"))
        fixed = choice.integer("Fixed", MAX_U64)
        choice.done()
    multiple = fields.take("pad_to_multiple_of", None)
    padding = Padding(
        fixed=fixed,
        left=fields.choice("direction", _DIRECTIONS) == "Left",
        multiple=0 if multiple is None else integer(multiple, fields.place("pad_to_multiple_of"), MAX_U64),
        id=fields.integer("pad_id"),
        type_id=fields.integer("pad_type_id"),
        token=fields.string("pad_token"),
    )
    fields.done()
    if max(fixed or 0, padding.multiple) > MAX_PADDED:
        raise ProgramUnsupported(path, f"rows padded to more than {MAX_PADDED:,} ids")
    return padding


def length_conf(truncation: Truncation | None, padding: Padding | None) -> dict[Conf, int]:
    """The CONF fields of both."""
    conf: dict[Conf, int] = {}
    if truncation is not None:
        conf[Conf.TRUNC_ON] = 1
        conf[Conf.TRUNC_MAX] = min(truncation.max_length, MAX_U32)
        conf[Conf.TRUNC_LEFT] = int(truncation.left)
        conf[Conf.TRUNC_STRIDE] = NONE if truncation.only_second else min(truncation.stride, MAX_U32)
    if padding is not None:
        conf[Conf.PAD_MODE] = 1 if padding.fixed is None else 2
        conf[Conf.PAD_FIXED] = padding.fixed or 0
        conf[Conf.PAD_MULTIPLE] = padding.multiple
        conf[Conf.PAD_ID] = padding.id
        conf[Conf.PAD_LEFT] = int(padding.left)
    return conf
