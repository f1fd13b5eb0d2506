"""The digest of what compiles: a program made by another compiler, or from other tables, is not the program.

Over the Python sources of this package, the Unicode tables, and the native module, which holds the rest of the compiler
as built (native/compile, kernels/shared). A changed engine therefore also means a rebuilt cache: a second, once. Unlike
the identity of the engine (`engine_identity`) it is of one build, so two machines may have two.
"""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cache
from pathlib import Path

from toktier.canonical import TAG_COMPILER, document_digest
from toktier.program.engine_identity import python_digests
from toktier.program.layout import FORMAT_VERSION


@cache
def compiler_digest() -> str:
    """Hex digest; computed once in a process, a few milliseconds."""
    digests = dict(python_digests())
    native = importlib.util.find_spec("toktier._native")
    if native is not None and native.origin:
        digests["_native"] = hashlib.sha256(Path(native.origin).read_bytes()).hexdigest()
    return document_digest(TAG_COMPILER, {"format": FORMAT_VERSION, "files": digests})
