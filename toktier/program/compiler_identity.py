"""The digest of what compiles: a program made by another compiler, or from other tables, is not the program.

Over the Python sources of this package, the Unicode tables, and the native module, which holds the rest of the compiler
as built (native/compile, kernels/shared). A changed engine therefore also means a rebuilt cache: a second, once. Unlike
the identity of the engine (`engine_identity`) it is of one build, so two machines may have two.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from toktier.canonical import TAG_COMPILER, document_digest
from toktier.program.engine_identity import python_digests
from toktier.program.layout import FORMAT_VERSION


@cache
def compiler_digest() -> str:
    """Hex digest; computed once in a process, a few milliseconds. A load asks `installation.identities`."""
    return digest_with(python_digests())


def digest_with(python: Mapping[str, str]) -> str:
    """The digest, hex, of the native module beside Python sources and tables with these digests."""
    digests = dict(python)
    native = native_module()
    if native is not None:
        digests["_native"] = hashlib.sha256(Path(native).read_bytes()).hexdigest()
    return document_digest(TAG_COMPILER, {"format": FORMAT_VERSION, "files": digests})


def native_module() -> str | None:
    """The file of the native module."""
    native = importlib.util.find_spec("toktier._native")
    return None if native is None else native.origin
