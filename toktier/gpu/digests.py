"""tables/kernel_digests.json: what each NVRTC build makes of the kernels, one SHA-256 for each architecture.

The same sources, options and NVRTC build give the same bytes, on any machine; so a cubin whose digest is listed is the
one that was built where the table was written, whoever compiled it. Written by tools/generate_kernel_digests.py. Not
here: what evidence says of a digest (`toktier.evidence`).
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from toktier import shipped_tables
from toktier.canonical import TAG_KERNEL_DIGESTS, document_digest

FILE = "kernel_digests.json"
SCHEMA, SCHEMA_VERSION = "toktier.kernel_digests", 1
CALLED = "table of kernel digests"
_HEX = frozenset("0123456789abcdef")


class Finding(enum.StrEnum):
    """Whether a cubin is listed, and if not, why: its NVRTC build is not, the installed sources are not those that the
    table is of, or all is as listed and the bytes differ nevertheless."""

    LISTED = "listed"
    OTHER_TOOLCHAIN = "other_toolchain"
    OTHER_SOURCES = "other_sources"
    DIFFERS = "differs"


@dataclass(frozen=True)
class Build:
    """One NVRTC build: its distribution and version, and SHA-256 (hex) by architecture."""

    distribution: str
    version: str
    cubins: dict[str, str]


@dataclass(frozen=True)
class KernelDigests:
    """`sources`: digest of the sources that were compiled. The first build is the pinned one."""

    sources: str
    options: tuple[str, ...]
    builds: tuple[Build, ...]

    @property
    def pinned(self) -> str:
        """The requirement that brings the pinned NVRTC."""
        return f"{self.builds[0].distribution}=={self.builds[0].version}"

    def is_listed(self, sha256: str, architecture: str) -> bool:
        return any(build.cubins.get(architecture) == sha256 for build in self.builds)

    def finding(self, sha256: str, architecture: str, *, sources: str, version: str) -> Finding:
        """Of a cubin that NVRTC `version` (`13.5.37`) made of sources with this digest."""
        if self.is_listed(sha256, architecture):
            return Finding.LISTED
        if sources != self.sources:
            return Finding.OTHER_SOURCES
        known = any(build.version == version and architecture in build.cubins for build in self.builds)
        return Finding.DIFFERS if known else Finding.OTHER_TOOLCHAIN


def root_digest(document: dict[str, Any]) -> str:
    content = {name: value for name, value in document.items() if name != "root_digest"}
    return f"sha256:{document_digest(TAG_KERNEL_DIGESTS, content)}"


def parse_digests(data: bytes, where: str = FILE) -> KernelDigests:
    """Raises RegistryInvalid for a table that is damaged or of another form."""
    with shipped_tables.held_to_form(CALLED, where):
        document = json.loads(data)
        shipped_tables.demand_schema(document, SCHEMA, SCHEMA_VERSION)
        shipped_tables.demand_digest(document["root_digest"], root_digest(document))
        builds = tuple(_build(entry) for entry in document["builds"])
        if not builds:
            raise ValueError("no build is listed")
        return KernelDigests(_digest(document["sources"]), tuple(map(str, document["options"])), builds)


def _build(entry: dict[str, Any]) -> Build:
    cubins = {str(name): _digest(sha256) for name, sha256 in entry["cubins"].items()}
    return Build(str(entry["distribution"]), str(entry["version"]), cubins)


def _digest(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 64 or not _HEX.issuperset(value):
        raise ValueError(f"{value!r} is no SHA-256")
    return value


@cache
def shipped_digests() -> KernelDigests:
    """The table that came with the package. Raises RegistryInvalid."""
    return parse_digests(*shipped_tables.read_table(FILE, CALLED))
