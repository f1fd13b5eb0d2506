"""What compiles kernels on this host: the CUDA binding and the NVRTC library, found by the names of files.

Nothing is imported or loaded to find them, and what is found is handed to the compiling process by its path, so that
what was found is what compiles. First the import path, as distributions install NVRTC, then CUDA_PATH, CUDA_HOME and
CONDA_PREFIX, then the places of a system's toolkit. Not here: compiling (`nvrtc`), which toolchains are listed
(`digests`).
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from toktier import storage
from toktier.errors import EnvironmentFault, KernelsUnavailable
from toktier.gpu.digests import shipped_digests
from toktier.labels import shown_path
from toktier.program import trust

LIBRARIES = ("libnvrtc.so.13", "libnvrtc.so.12")  # what the binding can load, in its order
BINDING = ("cuda", "bindings")
BINDING_MODULE = re.compile(r"nvrtc\.(py|so|.*\.so)", re.ASCII)
BINDING_REQUIREMENT = "cuda-python>=13,<14"
ROOT_VARIABLES = ("CUDA_PATH", "CUDA_HOME", "CONDA_PREFIX")
_BUILTINS = re.compile(r"libnvrtc-builtins\.so\.(\d+\.\d+)", re.ASCII)


@dataclass(frozen=True)
class Places:
    """Where toolchains are looked for. `system`: where /usr lies."""

    import_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    system: Path = Path("/")


@dataclass(frozen=True)
class Toolchain:
    """`library` and `builtins`: real paths of NVRTC's two files. `version`: as `13.5`, which is what their names tell.
    `found_via`: `import path`, the name of a variable, or `system`. `import_path`: where the binding lies."""

    library: Path
    builtins: Path
    version: str
    found_via: str
    import_path: tuple[str, ...]
    memory: Path | None = None

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of both files. 150 MB are hashed in 0.2 s; where there is a cache, once for each state of them.
        Raises EnvironmentFault."""
        return {"library_sha256": self._hashed(self.library), "builtins_sha256": self._hashed(self.builtins)}

    def _hashed(self, path: Path) -> str:
        hint = None
        if self.memory is not None:
            hint = self.memory / f"{hashlib.sha256(os.fsencode(path)).hexdigest()}.json"
        try:
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                known = None if hint is None else trust.trusted_digest(status, hint)
                if known is not None:
                    return known
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise storage.environment_fault(error, "read", path) from None
        if hint is not None and self.memory is not None:
            try:
                storage.make_directory(self.memory)
            except EnvironmentFault:
                return digest  # hashed again next time
            trust.record_digest(status, digest, hint)
        return digest


@dataclass(frozen=True)
class Missing:
    """What a toolchain lacks here: `binding`, `nvrtc`."""

    lacks: tuple[str, ...]

    def error(self) -> KernelsUnavailable:
        names = {"binding": "the CUDA binding (cuda.bindings.nvrtc)", "nvrtc": "NVRTC (libnvrtc)"}
        what = " and ".join(names[name] for name in self.lacks)
        return KernelsUnavailable(
            f"kernels cannot be compiled here: {what} {'is' if len(self.lacks) == 1 else 'are'} not installed",
            details={"lacks": list(self.lacks)},
            remedy=install_line(),
        )


def install_line() -> str:
    """What brings a toolchain whose kernels are listed."""
    return f"pip install '{BINDING_REQUIREMENT}' {shipped_digests().pinned}"


def find_toolchain(places: Places | None = None, *, memory: Path | None = None) -> Toolchain | Missing:
    """The toolchain of this host, or what it lacks. `memory`: where digests of libraries are noted."""
    places = places or Places()
    binding = any(_holds_binding(entry) for entry in places.import_path)
    library = next(_libraries(places), None)
    if library is None or not binding:
        return Missing((() if binding else ("binding",)) + (() if library is not None else ("nvrtc",)))
    path, builtins, version, found_via = library
    return Toolchain(path, builtins, version, found_via, places.import_path, memory)


def _holds_binding(entry: str) -> bool:
    return any(BINDING_MODULE.fullmatch(name) for name in _names(Path(entry or os.curdir).joinpath(*BINDING)))


def _libraries(places: Places) -> Iterator[tuple[Path, Path, str, str]]:
    """Every usable pair of library and builtins, the one to take first."""
    for directory, found_via in _directories(places):
        names = _names(directory)
        for name in LIBRARIES:
            if name not in names:
                continue
            major = name.rpartition(".")[2]
            # One that belongs to this library: of a directory with several toolkits, the newest of its major version.
            versions = [match[1] for other in names if (match := _BUILTINS.fullmatch(other))]
            fitting = sorted((v for v in versions if v.split(".")[0] == major), key=_numbers)
            if fitting:
                builtins = directory / f"libnvrtc-builtins.so.{fitting[-1]}"
                yield Path(os.path.realpath(directory / name)), Path(os.path.realpath(builtins)), fitting[-1], found_via


def _directories(places: Places) -> Iterator[tuple[Path, str]]:
    for entry in places.import_path:
        packages = Path(entry or os.curdir) / "nvidia"
        for name in sorted(_names(packages)):  # cu13 of nvidia-cuda-nvrtc, cuda_nvrtc of nvidia-cuda-nvrtc-cu12
            yield packages / name / "lib", "import path"
    for variable in ROOT_VARIABLES:
        root = places.environ.get(variable, "")
        if os.path.isabs(root):
            for leaf in ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
                yield Path(root) / leaf, variable
    usr = places.system / "usr"
    toolkits = sorted((n for n in _names(usr / "local") if n.startswith("cuda")), key=_numbers, reverse=True)
    for toolkit in toolkits:
        yield usr / "local" / toolkit / "lib64", "system"
    yield usr / "lib64", "system"
    for name in sorted(n for n in _names(usr / "lib") if n.endswith("-linux-gnu")):
        yield usr / "lib" / name, "system"


def _numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)]


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def described(toolchain: Toolchain) -> dict[str, str]:
    """For documents and records. Raises EnvironmentFault."""
    return {
        "version": toolchain.version,
        "library": shown_path(toolchain.library),
        "builtins": shown_path(toolchain.builtins),
        "found_via": toolchain.found_via,
        **toolchain.digests,
    }
