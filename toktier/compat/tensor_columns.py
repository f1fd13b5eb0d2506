"""Columns of a result as tensors: numpy arrays, and tensors of torch that are made of them.

Not here: which columns there are, and what stands in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toktier.compat.call_options import InvalidCall
from toktier.errors import BackendUnavailable

_NUMBERS = "biuf"  # numpy's kinds of what a tensor of torch holds


def as_array(column: Any) -> Any:
    """A column as one array; of rows that differ in length an object array of one array for each row."""
    import numpy as np

    if isinstance(column, list) and column and isinstance(column[0], (list, tuple, np.ndarray)):
        if len({len(row) for row in column}) > 1:
            ragged = np.empty(len(column), dtype=object)
            for i, row in enumerate(column):
                ragged[i] = np.asarray(row)
            return ragged
        if not len(column[0]):
            return np.asarray(column, dtype=np.int64)
    return np.asarray(column, dtype=np.int64 if isinstance(column, (list, tuple)) and not column else None)


def tensors(columns: Mapping[str, Any], kind: str | None) -> dict[str, Any]:
    """Columns as tensors of `kind`: "np", "pt", or None for none. Tensors of torch stay what they are.

    Raises InvalidCall for what torch cannot hold, BackendUnavailable where it is not installed.
    """
    if kind is None:
        return dict(columns)
    for name, column in columns.items():
        if not hasattr(column, "__len__"):
            raise InvalidCall(
                f"{name} is {column!r}: expected values in a list",
                details={"argument": "return_tensors"},
                remedy="give a list of rows, not one row alone",
            )
    if kind == "np":
        return {name: as_array(column) for name, column in columns.items()}
    try:
        import torch  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise BackendUnavailable(
            f'return_tensors is "pt", and torch cannot be imported: {error}',
            details={"argument": "return_tensors"},
            remedy='install torch, or ask for "np"',
        ) from None
    made: dict[str, Any] = {}
    for name, column in columns.items():
        if is_torch(column):
            made[name] = column
            continue
        array = as_array(column)
        if array.dtype.kind not in _NUMBERS:
            raise InvalidCall(
                f"{name} has rows of different lengths, or values that are no numbers: no tensor holds them",
                details={"argument": "return_tensors"},
                remedy="give padding=True, truncation=True or both, and leave out columns that are no numbers",
            )
        if array.dtype.kind == "f" and array is not column:
            array = array.astype("float32")  # what torch makes of floats of Python
        made[name] = torch.from_numpy(array)
    return made


def is_torch(value: Any) -> bool:
    """Whether `value` is a tensor of torch; asked without importing it."""
    return type(value).__module__.partition(".")[0] == "torch"
