"""Wheels and the hosts they run on: what a wheel says of itself, and which wheels and markers a target host takes.

The rules are those of the distribution `packaging`, which pip itself uses. Not here: where wheels come from
(`kit_wheels`).
"""

from __future__ import annotations

import hashlib
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from functools import cached_property
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from toktier.errors import ArtifactNotFound, BundleInvalid, UsageError
from toktier.labels import shown
from toktier.storage import environment_fault

MAX_METADATA_BYTES = 4 << 20
MAX_LICENCE_CHARACTERS = 120
CHUNK = 1 << 20

_PYTHON = re.compile(r"3\.([1-9]?[0-9])")
_PLATFORM = re.compile(r"manylinux_2_([1-9]?[0-9])_([a-z0-9_]{1,20})")
_LEGACY = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}  # the glibc minor version of each old name
_OLDEST_GLIBC = 5


@dataclass(frozen=True)
class Target:
    """A Linux host with CPython: `python` is (3, minor), `glibc` the minor of 2.x, `machine` as in wheel tags."""

    python: tuple[int, int]
    glibc: int
    machine: str

    @property
    def platform(self) -> str:
        """As in the tags of wheels."""
        return f"manylinux_2_{self.glibc}_{self.machine}"

    @property
    def python_text(self) -> str:
        return f"{self.python[0]}.{self.python[1]}"

    def __str__(self) -> str:
        return f"CPython {self.python_text} on Linux {self.machine} with glibc 2.{self.glibc}"

    @cached_property
    def platforms(self) -> list[str]:
        """Every platform tag that it takes, newest first: pip does not work out the older ones for a foreign host."""
        legacy = {minor: name for name, minor in _LEGACY.items()}
        found = []
        for minor in range(self.glibc, _OLDEST_GLIBC - 1, -1):
            found.append(f"manylinux_2_{minor}_{self.machine}")
            if minor in legacy:
                found.append(f"{legacy[minor]}_{self.machine}")
        return found

    @cached_property
    def tags(self) -> frozenset[Tag]:
        """Every wheel tag that it takes."""
        abi = f"cp{self.python[0]}{self.python[1]}"
        native = cpython_tags(self.python, abis=[abi], platforms=self.platforms)
        return frozenset([*native, *compatible_tags(self.python, abi, self.platforms)])

    @cached_property
    def markers(self) -> dict[str, str]:
        """Its environment markers; the patch release is not known and counts as 0."""
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python_text}.0",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{self.python_text}.0",
            "python_version": self.python_text,
            "sys_platform": "linux",
        }


def parse_python(text: str) -> tuple[int, int]:
    """(3, minor) of a version such as 3.11. Raises UsageError."""
    match = _PYTHON.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--python {shown(text)} is not understood: expected a version such as 3.11",
            remedy="toktier artifacts kit --help",
        )
    return 3, int(match[1])


def parse_platform(text: str) -> tuple[int, str]:
    """glibc minor and machine of a platform tag such as manylinux_2_28_x86_64. Raises UsageError."""
    name, _, machine = text.partition("_")
    match = _PLATFORM.fullmatch(f"manylinux_2_{_LEGACY[name]}_{machine}" if name in _LEGACY else text)
    if match is None or int(match[1]) < _OLDEST_GLIBC:
        raise UsageError(
            f"--platform {shown(text)} is not understood: expected manylinux_2_N_MACHINE, such as manylinux_2_28_x86_64"
            " (`ldd --version` on the other host says its glibc 2.N, `uname -m` its machine)",
            remedy="toktier artifacts kit --help",
        )
    return int(match[1]), match[2]


@dataclass(frozen=True)
class Wheel:
    """One wheel file and what its metadata says. `size` in bytes, `sha256` in hex."""

    path: Path
    name: str
    version: Version
    tags: frozenset[Tag]
    requires: tuple[Requirement, ...]
    requires_python: SpecifierSet
    licence: str | None
    sha256: str
    size: int

    def runs_on(self, target: Target) -> bool:
        return bool(self.tags & target.tags) and f"{target.python_text}.0" in self.requires_python

    def needs(self, target: Target, extras: frozenset[str]) -> Iterator[Requirement]:
        """What it requires on `target` when it is asked for with `extras`."""
        for requirement in self.requires:
            asked = [{**target.markers, "extra": extra} for extra in sorted(extras | {""})]
            if requirement.marker is None or any(requirement.marker.evaluate(markers) for markers in asked):
                yield requirement


def read_wheel(path: Path) -> Wheel:
    """A wheel file.

    Raises ArtifactNotFound, EnvironmentFault, UsageError for a name that no wheel has, BundleInvalid for a damaged one.
    """
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename:
        raise UsageError(
            f"{shown(path.name)} is not named as a wheel is", remedy="python3 tools/dev.py wheel  # in a checkout"
        ) from None
    try:
        with open(path, "rb") as file:
            state, size = hashlib.sha256(), 0
            while block := file.read(CHUNK):
                state.update(block)
                size += len(block)
        headers = BytesHeaderParser().parsebytes(member(path, r"[^/]+\.dist-info/METADATA", MAX_METADATA_BYTES))
        requires = tuple(Requirement(str(line)) for line in headers.get_all("Requires-Dist", []))
        requires_python = SpecifierSet(str(headers.get("Requires-Python", "")))
    except FileNotFoundError:
        raise ArtifactNotFound(f"there is no wheel {path}", details={"path": str(path)}) from None
    except OSError as error:
        raise environment_fault(error, "read", path) from None
    except (InvalidRequirement, InvalidSpecifier) as error:
        raise damaged(path, f"its metadata is not understood: {shown(str(error))}") from None
    licence = (
        headers.get("License-Expression") or headers.get("License") or _classified(headers.get_all("Classifier", []))
    )
    return Wheel(
        path, canonicalize_name(name), version, tags, requires, requires_python,
        None if licence is None else " ".join(str(licence).split())[:MAX_LICENCE_CHARACTERS],
        state.hexdigest(), size,
    )  # fmt: skip


def member(path: Path, name: str, limit: int) -> bytes:
    """The one file of a wheel whose whole name matches the pattern. Raises BundleInvalid, OSError."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = [info for info in archive.infolist() if re.fullmatch(name, info.filename)]
            if len(found) != 1 or found[0].file_size > limit:
                raise damaged(path, f"expected one file {name} of at most {limit:,} bytes in it")
            with archive.open(found[0]) as file:
                return file.read(limit + 1)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error) as error:
        raise damaged(path, f"it is no readable archive: {shown(str(error))}") from None


def damaged(path: Path, why: str) -> BundleInvalid:
    return BundleInvalid(
        f"the wheel {path.name} is damaged: {why}", details={"path": str(path)}, remedy="bring it again"
    )


def _classified(classifiers: list[str]) -> str | None:
    licences = [c.rpartition(" :: ")[2] for c in map(str, classifiers) if c.startswith("License :: ")]
    return ", ".join(licences) or None
