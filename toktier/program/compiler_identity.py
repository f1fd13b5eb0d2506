"""The digest of what compiles: a program made by another compiler, or from other tables, is not the program.

Over the Python sources of this package, the Unicode tables, and the native module, which holds the rest of the compiler
as built (native/compile, kernels/shared). A changed engine therefore also means a rebuilt cache: a second, once.
"""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cache
from pathlib import Path

from toktier.canonical import TAG_COMPILER, document_digest
from toktier.program.layout import FORMAT_VERSION
from toktier.resources import tables_dir


@cache
def compiler_digest() -> str:
    """Hex digest; computed once in a process, a few milliseconds."""
    package = Path(__file__).parent
    native = importlib.util.find_spec("toktier._native")
    files = {
        **{f"program/{path.name}": path for path in package.glob("*.py")},
        **{f"unicode/{path.name}": path for path in (tables_dir() / "unicode").iterdir() if path.is_file()},
    }
    if native is not None and native.origin:
        files["_native"] = Path(native.origin)
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    return document_digest(TAG_COMPILER, {"format": FORMAT_VERSION, "files": digests})
