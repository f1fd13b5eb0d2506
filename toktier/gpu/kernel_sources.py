"""The sources of the kernels, all in memory: one unit and the headers that it names by their bare file names.

No path of this machine reaches the compiler, so the bytes that it makes depend on what is written and on nothing else.
Not here: options and compiler (`nvrtc`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from toktier import resources
from toktier.canonical import TAG_KERNEL_SOURCES, document_digest
from toktier.errors import RegistryInvalid

UNIT = "toktier.cu"
HEADER_DIRECTORIES = ("device", "shared")
REMEDY = "install toktier again"


@dataclass(frozen=True)
class KernelSources:
    """`unit`: the text that is compiled. `headers`: texts by the names that #include says."""

    unit: str
    headers: dict[str, str]

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of every source, by name."""
        texts = {UNIT: self.unit, **self.headers}
        return {name: hashlib.sha256(texts[name].encode("utf-8")).hexdigest() for name in sorted(texts)}

    @property
    def digest(self) -> str:
        """One digest of all, hex."""
        return document_digest(TAG_KERNEL_SOURCES, self.digests)


def read_sources(directory: Path | None = None) -> KernelSources:
    """The sources of this installation. RegistryInvalid where they are not whole."""
    root = resources.data_root() / "kernels" if directory is None else directory
    try:
        headers: dict[str, str] = {}
        for place in HEADER_DIRECTORIES:
            for path in sorted((root / place).iterdir()):
                if path.suffix == ".h":
                    if path.name in headers:
                        raise RegistryInvalid(
                            f"two headers of the kernels are named {path.name}",
                            details={"file": str(path)},
                            remedy=REMEDY,
                        )
                    headers[path.name] = _text(path)
        return KernelSources(_text(root / UNIT), headers)
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryInvalid(
            f"the sources of the kernels cannot be read: {error}", details={"directory": str(root)}, remedy=REMEDY
        ) from None


def _text(path: Path) -> str:
    text = path.read_bytes().decode("utf-8")
    if "\0" in text:  # the compiler would take the text up to there
        raise RegistryInvalid(f"{path.name} holds a zero byte", details={"file": str(path)}, remedy=REMEDY)
    return text
