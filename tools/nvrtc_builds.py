"""The NVRTC builds whose kernels are listed, and where `dev.py kernels` puts them; no other place is looked at.

build/nvrtc/site holds what the extra gpu-jit brings, the pinned NVRTC with the binding; every other build lies alone in
a directory of its own, and is found before the pinned one. Imports nothing of toktier: dev.py reads it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PLACE = REPOSITORY / "build" / "nvrtc"
SITE = PLACE / "site"
# Beside the pinned one: what torch for CUDA 13.0 brings, and the last of CUDA 12, for drivers before 580.
OTHERS = (("nvidia-cuda-nvrtc", "13.0.88"), ("nvidia-cuda-nvrtc-cu12", "12.9.86"))
EXTRA = "gpu-jit"


def extras() -> dict[str, list[str]]:
    return dict(tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])


def pinned() -> tuple[str, str]:
    """Distribution and version that the extra pins."""
    found = (re.fullmatch(r"(nvidia-cuda-nvrtc)==([\d.]+)", requirement) for requirement in extras()[EXTRA])
    match = next(filter(None, found), None)
    if match is None:
        raise SystemExit(f"pyproject.toml: the extra {EXTRA} pins no nvidia-cuda-nvrtc")
    return match[1], match[2]


def builds() -> tuple[tuple[str, str], ...]:
    return (pinned(), *OTHERS)


def site_of(distribution: str, version: str) -> Path:
    return SITE if (distribution, version) == pinned() else PLACE / f"{distribution}-{version}"


def import_path(distribution: str, version: str) -> tuple[str, ...]:
    """Where a build is found first, and then the binding. Places that do not exist hold nothing."""
    own = site_of(distribution, version)
    return (str(own),) if own == SITE else (str(own), str(SITE))
