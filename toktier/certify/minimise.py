"""The shortest text, or script of edits, that still differs: delta debugging over its parts, with a bound on the calls.

The result is 1-minimal (no single code point, or edit, can be left out) unless the bound ended the search; then it is
the shortest that was found. Not here: what "differs" means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

MAX_CALLS = 3000
Parts = TypeVar("Parts", str, tuple[Any, ...])


def minimise(text: Parts, differs: Callable[[Parts], bool], max_calls: int = MAX_CALLS) -> Parts:
    """`differs(text)` is true, and is true of the result."""
    calls = 0
    parts = 2
    while len(text) >= 2:
        size = -(-len(text) // parts)
        for begin in range(0, len(text), size):
            if calls >= max_calls:
                return text
            calls += 1
            shorter = text[:begin] + text[begin + size :]
            if differs(shorter):
                text, parts = shorter, max(2, parts - 1)
                break
        else:
            if size == 1:
                return text
            parts = min(len(text), parts * 2)
    return text
