"""Whether a device can run a program at all: the premises of docs/gpu.md, as the native module looks at them.

Nothing is decided here a second time, and no device is asked: which one there is, and what is known of it, is for
routing.
"""

from __future__ import annotations

from toktier import _native


def unsuitable(program: _native.Program) -> str | None:
    """The first premise that fails, as a clause; None where all of them hold."""
    found = _native.unsuitable(program)
    return None if found is None else found[1]
