"""Rows that are encoded already, padded together: what data collators of `transformers` ask of a tokenizer.

Ids, masks and type ids are padded; columns that no rule of padding is known for (`labels`, offsets) stay as they are,
as in transformers, and so does an attention mask that is not asked for. What is given is never changed. Not here:
texts (`composed_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from toktier.compat import call_options as names
from toktier.compat.batch_encoding import BatchEncoding
from toktier.compat.call_options import CallOptions, InvalidCall, width_of
from toktier.compat.tensor_columns import is_torch, tensors


def columns_of(rows: Any, main: str) -> dict[str, Any]:
    """Columns of one row, of a batch, or of a list of rows whose names are those of the first. Raises InvalidCall."""
    if isinstance(rows, (list, tuple)) and rows and all(isinstance(row, Mapping) for row in rows):
        for index, row in enumerate(rows):
            lacking = [name for name in rows[0] if name not in row]
            if lacking:
                raise _odd(f"row {index} has no {lacking[0]}, which the first row has")
        columns = {name: [row[name] for row in rows] for name in rows[0]}
    elif isinstance(rows, Mapping):
        columns = dict(rows)
    else:
        raise _odd(f"the rows are a {type(rows).__name__} that holds no rows")
    if main not in columns:
        raise _odd(f"the rows hold {', '.join(map(str, columns)) or 'nothing'}, and no {main}")
    return columns


def padded(
    columns: dict[str, Any], main: str, options: CallOptions, *, mask: bool | None, usual_mask: bool
) -> BatchEncoding:
    """`columns` padded as `options` say; `main`: the column of ids; `mask`: whether an attention mask is
    wanted, and `usual_mask` where nobody says; of no rows at all that counts for nothing, as in transformers.

    Raises InvalidCall for columns that do not fit together.
    """
    ids = columns[main]
    if ids is None or len(ids) == 0:
        columns |= {names.ATTENTION_MASK: []} if mask else {}
        return BatchEncoding(columns, backend=None)
    mask = usual_mask if mask is None else mask
    stacked = _square_masks(columns.get(names.ATTENTION_MASK))
    if stacked is not None:
        del columns[names.ATTENTION_MASK]
    first = next((row[0] for row in ids if isinstance(row, (list, tuple)) and row), ids[0])
    if not isinstance(first, (int, list, tuple)):
        options = options if options.tensors else replace(options, tensors=_kind_of(first, main))
        columns = {name: as_lists(column) for name, column in columns.items()}
        ids = columns[main]
    if not isinstance(ids[0], (list, tuple)):
        found = _row(columns, main, width_of(len(ids), options), options, mask)
    else:
        for name, column in columns.items():
            if len(column) != len(ids):
                raise _odd(f"{name} has {len(column)} rows, and {main} has {len(ids)}")
        width = width_of(max(map(len, ids)), options)
        rows = [
            _row({name: column[i] for name, column in columns.items()}, main, width, options, mask)
            for i in range(len(ids))
        ]
        found = {name: [row[name] for row in rows] for name in rows[0]}
        if stacked is not None:
            found[names.ATTENTION_MASK] = stacked
    return BatchEncoding(tensors(found, options.tensors), backend=None)


def as_lists(value: Any) -> Any:
    """Lists of what has `tolist`, arrays and tensors, at any depth."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return [as_lists(part) for part in value] if isinstance(value, (list, tuple)) else value


def _row(row: dict[str, Any], main: str, width: int, options: CallOptions, mask: bool) -> dict[str, Any]:
    count = len(row[main])
    if mask and names.ATTENTION_MASK not in row:
        row[names.ATTENTION_MASK] = [1] * count
    lacking = max(0, width - count)
    if not lacking:
        return row
    pads = {main: options.pad_id, names.TYPE_IDS: options.pad_type_id, names.SPECIAL_MASK: 1}
    if mask:
        pads[names.ATTENTION_MASK] = 0
    for name, pad in pads.items():
        if name in row:
            given = row[name]
            if isinstance(given, str) or not isinstance(given, Sequence):
                raise _odd(f"{name} of a row is a {type(given).__name__}")
            filling = [pad] * lacking
            row[name] = filling + list(given) if options.padding_side == "left" else list(given) + filling
    return row


def _square_masks(masks: Any) -> Any:
    """Masks of more than one dimension, one for each row: they are stacked, and never padded. None of other masks."""
    if not isinstance(masks, list) or not masks or getattr(masks[0], "ndim", 0) <= 1:
        return None
    if is_torch(masks[0]):
        import torch  # type: ignore[import-not-found, unused-ignore]

        return torch.stack(masks)
    import numpy as np

    return np.stack(masks)


def _kind_of(first: Any, main: str) -> str:
    if is_torch(first):
        return "pt"
    if type(first).__module__.partition(".")[0] == "numpy" and getattr(first, "ndim", 0) > 0:
        return "np"
    raise _odd(f"{main} holds a {type(first).__name__}")


def _odd(what: str) -> InvalidCall:
    return InvalidCall(
        f"{what}: expected one row, a batch of rows, or a list of rows, as the tokenizer gives them",
        details={"argument": "encoded_inputs"},
        remedy="give what calls of the tokenizer gave",
    )
