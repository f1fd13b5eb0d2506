"""Whether a device can run a program at all: the premises of docs/gpu.md, as the native module looks at them.

Nothing is decided here a second time, and no device is asked: which one there is, and what is known of it, is for
routing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from toktier import _native
from toktier.errors import ProgramUnsupported

COMPILER = "compiler"
"""In the place of a premise: the compiler declines the tokenizer, so that there is no program to look at."""


@dataclass(frozen=True, slots=True)
class Suitability:
    """`premise`: code of the first that fails (`TOKTIER_PREMISES` in native/gpu/tables.h, or COMPILER), None: all hold;
    `reason`: the same as a clause. `tables_sha256`, `tables_bytes`: of what a device would be given."""

    premise: str | None
    reason: str | None
    tables_sha256: str | None = None
    tables_bytes: int | None = None

    @property
    def suits(self) -> bool:
        return self.premise is None

    def to_dict(self) -> dict[str, Any]:
        return {
            "suits": self.suits,
            "premise": self.premise,
            "reason": self.reason,
            "tables_sha256": self.tables_sha256,
            "tables_bytes": self.tables_bytes,
        }

    def to_text(self) -> str:
        """A clause for people."""
        if self.suits:
            return f"kernels can follow it, {self.tables_bytes or 0:,} bytes of tables"
        return f"kernels cannot follow it: {self.reason} ({self.premise})"


def unsuitable(program: _native.Program) -> str | None:
    """The first premise that fails, as a clause; None where all of them hold."""
    found = _native.unsuitable(program)
    return None if found is None else found[1]


def suitability(program: _native.Program) -> Suitability:
    """Of a program, with the tables that are derived from it for a device (2 ms)."""
    found = _native.unsuitable(program)
    if found is not None:
        return Suitability(*found)
    image = _native.device_tables(program)
    return Suitability(None, None, hashlib.sha256(image).hexdigest(), len(image))


def of_unsupported(error: ProgramUnsupported) -> Suitability:
    """Of a tokenizer beyond the compiler."""
    return Suitability(COMPILER, f"the compiler declines {error.path} = {error.component}")
