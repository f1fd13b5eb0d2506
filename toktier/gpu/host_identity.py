"""The identity of the host side of the GPU: a digest of every source that decides what is done with what kernels give.

Over native/gpu and the interfaces in kernels/device, fixed when the native module is built, and over toktier/gpu, which
is hashed where it lies. Part of no identity of the CPU engine: what a GPU needs never makes evidence of it stale.
Kernels are known by the digest of the cubin. Imported by the build, before there is a native module.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from toktier.canonical import TAG_GPU_HOST, TAG_GPU_HOST_NATIVE, document_digest

NATIVE_PARTS = ("native/gpu", "kernels/device")
NOTES = (".md", ".txt")  # beside the sources, and no part of them


def native_digest(root: Path) -> str:
    """Of the part that is fixed when the native module is built, hex; `root`: the checkout."""
    files = [path for part in NATIVE_PARTS for path in sorted((root / part).rglob("*")) if path.is_file()]
    return document_digest(
        TAG_GPU_HOST_NATIVE,
        {path.relative_to(root).as_posix(): _sha256(path) for path in files if path.suffix not in NOTES},
    )


def host_digest(root: Path) -> str:
    """The identity of a checkout, hex."""
    return _combined(native_digest(root), root / "toktier" / "gpu")


@cache
def host_identity() -> str:
    """Of this installation, hex; read once in a process."""
    from toktier import _native

    return _combined(str(_native.build_facts()["gpu_host_digest"]), Path(__file__).parent)


def _combined(native: str, python: Path) -> str:
    files = {f"toktier/gpu/{path.name}": _sha256(path) for path in sorted(python.glob("*.py"))}
    return document_digest(TAG_GPU_HOST, {"native": native, "python": files})


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
