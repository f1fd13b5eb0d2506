"""The shortest text that still differs: delta debugging over code points, with a bound on the calls.

The result is 1-minimal (no single code point can be left out) unless the bound ended the search; then it is the
shortest that was found. Not here: what "differs" means.
"""

from __future__ import annotations

from collections.abc import Callable

MAX_CALLS = 3000


def minimise(text: str, differs: Callable[[str], bool], max_calls: int = MAX_CALLS) -> str:
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
