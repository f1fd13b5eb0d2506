"""The identity of an engine: a digest of every source that decides ids, offsets or decoding.

Over the engine (native/engine, native/session), the compiler in both languages (native/compile, toktier/program), the
steps that CPU and GPU share (kernels/shared) and the Unicode tables. Not over the registry, evidence, version numbers,
the GPU host, the command, bindings, compilers and flags: the last two are recorded apart (`_native.build_facts`).

The digest of the native part is fixed when the module is built; the rest is hashed where it lies. So the same sources
have one identity on every machine, and an installation of mixed parts has an identity that no evidence knows. Imported
by the build, before there is a native module. Not here: what evidence says of an identity (`toktier.evidence`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from toktier.canonical import TAG_ENGINE, TAG_ENGINE_NATIVE, document_digest
from toktier.resources import tables_dir

NATIVE_PARTS = ("native/engine", "native/session", "native/compile", "kernels/shared")
NOTES = (".md", ".txt")  # beside the sources, and no part of them


def python_places() -> dict[str, str]:
    """Sources and tables that lie beside this module in every installation: paths by their names in a checkout."""
    with os.scandir(os.path.dirname(__file__)) as entries:
        places = {f"toktier/program/{entry.name}": entry.path for entry in entries if entry.name.endswith(".py")}
    with os.scandir(tables_dir() / "unicode") as entries:
        places |= {f"tables/unicode/{entry.name}": entry.path for entry in entries if entry.is_file()}
    return places


def hash_python() -> Mapping[str, str]:
    """SHA-256 (hex) of each file of `python_places`, read now: a few milliseconds."""
    return {name: hashlib.sha256(Path(path).read_bytes()).hexdigest() for name, path in python_places().items()}


@cache
def python_digests() -> Mapping[str, str]:
    """The same, read once in a process."""
    return hash_python()


def identity_document(root: Path) -> dict[str, str]:
    """{path: SHA-256} of everything that the identity of the checkout `root` covers."""
    native = [p for part in NATIVE_PARTS for p in (root / part).rglob("*") if p.suffix not in NOTES]
    python = [*(root / "toktier" / "program").glob("*.py"), *(root / "tables" / "unicode").iterdir()]
    files = sorted(path for path in [*native, *python] if path.is_file())
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def native_digest(document: Mapping[str, str]) -> str:
    """Hex digest of the part that is fixed when the native module is built."""
    return document_digest(
        TAG_ENGINE_NATIVE, {name: digest for name, digest in document.items() if name.startswith(NATIVE_PARTS)}
    )


def digest_of(document: Mapping[str, str]) -> str:
    """The identity of a checkout with this document, hex."""
    python = {name: digest for name, digest in document.items() if not name.startswith(NATIVE_PARTS)}
    return combined(native_digest(document), python)


def combined(native: str, python: Mapping[str, str]) -> str:
    """The identity, hex, of the native part with this digest beside these files."""
    return document_digest(TAG_ENGINE, {"native": native, "python": dict(python)})


def build_facts() -> dict[str, Any]:
    """What the native module says of its build: `identity` and `native_digest` of the sources, `compiler`, `flags`,
    `build_type`, `dispatch_levels`."""
    from toktier import _native

    return dict(_native.build_facts())


@cache
def engine_identity() -> str:
    """The identity of this installation, hex."""
    return combined(build_facts()["native_digest"], python_digests())


def is_bound() -> bool:
    """Whether the files here are those that the native module was built with."""
    return bool(build_facts()["identity"] == engine_identity())
