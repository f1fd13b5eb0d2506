"""An argument that must be an integer, by the rule of native code: anything with `__index__` but a bool.

Not here: bounds, which each caller has its own, and IDs (`toktier.decode_stream.checked_id`).
"""

from __future__ import annotations

from operator import index
from typing import Any


def integer_argument(value: Any, name: str, or_what: str = "") -> int:
    """`value` as an int. `or_what`: what else the argument may be, for the message. Raises TypeError that names it."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer{or_what}, not {type(value).__name__}")
    return index(value)
