"""The architectures that kernels are compiled for, and which of them a device can run. The one table.

A cubin runs on devices of its own major version and the same or a higher minor one: sm_80 on 8.0, 8.6, 8.7 and 8.9,
never on 9.0. Not here: what evidence says of an architecture.
"""

from __future__ import annotations

import re

# sm_75 is the oldest that NVRTC 13 compiles for; sm_100 and sm_120 need NVRTC 12.8.
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")

_NAME = re.compile(r"sm_(\d{1,3})(\d)", re.ASCII)


def compiled_for(device: str) -> str | None:
    """The architecture whose kernels a device of `device` (`sm_87`) runs best; None: none of them runs there."""
    wanted = _version(device)
    if wanted is None:
        return None
    fitting = [v for name in ARCHITECTURES if (v := _version(name)) and v[0] == wanted[0] and v[1] <= wanted[1]]
    return "sm_{}{}".format(*max(fitting)) if fitting else None


def _version(name: str) -> tuple[int, int] | None:
    match = _NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))
