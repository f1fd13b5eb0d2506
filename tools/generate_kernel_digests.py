"""Writes tables/kernel_digests.json: what each listed NVRTC build makes of the kernels, by architecture.

Input: the builds that `dev.py kernels` installs below build/nvrtc (`nvrtc_builds.py`). `--check` compares what the
pinned one makes, and any other that is at hand, with the table; without a toolchain it still holds the table's digest
of the sources to the sources. Not here: registers and stack of the kernels (`generate_kernel_budget.py`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

import nvrtc_builds  # noqa: E402
from checked_output import Declined, run  # noqa: E402

from toktier.gpu import digests  # noqa: E402
from toktier.gpu.architectures import ARCHITECTURES  # noqa: E402
from toktier.gpu.cubin import read_cubin  # noqa: E402
from toktier.gpu.kernel_sources import KernelSources, read_sources  # noqa: E402
from toktier.gpu.nvrtc import FIXED_OPTIONS, checked, compile_kernels  # noqa: E402
from toktier.gpu.toolchain import Places, Toolchain, find_toolchain  # noqa: E402

TABLE = REPOSITORY / "tables" / digests.FILE


def toolchain_of(distribution: str, version: str) -> Toolchain | None:
    """A build below build/nvrtc; None: it is not there."""
    if not nvrtc_builds.site_of(distribution, version).is_dir():
        return None
    found = find_toolchain(Places(nvrtc_builds.import_path(distribution, version), {}, REPOSITORY / "build" / "none"))
    return found if isinstance(found, Toolchain) else None


def compiled(toolchain: Toolchain, sources: KernelSources, version: str) -> dict[str, str]:
    """SHA-256 by architecture. An NVRTC that is not of `version` ends this program."""

    def one(architecture: str) -> str:
        data = checked(compile_kernels(toolchain, sources, architecture), architecture)
        made_by = read_cubin(data).compiler  # empty: the cubin does not tell
        if made_by not in ("", version):
            raise SystemExit(f"{toolchain.library} makes cubins of NVRTC {made_by}, not {version}")
        return hashlib.sha256(data).hexdigest()

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(ARCHITECTURES, pool.map(one, ARCHITECTURES), strict=True))


def table(entries: list[dict[str, Any]], sources: KernelSources) -> bytes:
    document: dict[str, Any] = {
        "schema": digests.SCHEMA,
        "schema_version": digests.SCHEMA_VERSION,
        "sources": sources.digest,
        "options": ["--gpu-architecture=ARCH", *FIXED_OPTIONS],
        "builds": entries,
    }
    document["root_digest"] = digests.root_digest(document)
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")


def generate(arguments: argparse.Namespace) -> dict[Path, bytes]:
    sources = read_sources()
    listed = {}
    if arguments.check and TABLE.is_file():
        listed = {(b.distribution, b.version): b.cubins for b in digests.parse_digests(TABLE.read_bytes()).builds}
    entries = []
    for distribution, version in nvrtc_builds.builds():
        toolchain = toolchain_of(distribution, version)
        if toolchain is not None:
            cubins = compiled(toolchain, sources, version)
        elif (distribution, version) == nvrtc_builds.pinned() or not arguments.check:
            raise Declined(f"{distribution} {version} is not at hand (tools/dev.py kernels brings it)")
        elif (distribution, version) in listed:
            cubins = listed[distribution, version]
        else:
            continue
        entries.append({"distribution": distribution, "version": version, "cubins": cubins})
    return {TABLE: table(entries, sources)}


def check_alone() -> list[str]:
    """What can be said without a toolchain: the table holds, is of these sources, and pins what pyproject.toml pins."""
    shipped = digests.parse_digests(TABLE.read_bytes(), str(TABLE))
    problems = []
    if shipped.sources != read_sources().digest:
        problems.append(f"{TABLE.name} is of other sources; run tools/dev.py kernels")
    if [(build.distribution, build.version) for build in shipped.builds] != list(nvrtc_builds.builds()):
        problems.append(f"{TABLE.name} lists other builds than tools/nvrtc_builds.py; run tools/dev.py kernels")
    if any(set(build.cubins) != set(ARCHITECTURES) for build in shipped.builds):
        problems.append(f"{TABLE.name} lists other architectures than toktier/gpu/architectures.py")
    return problems


if __name__ == "__main__":
    raise SystemExit(run(__doc__, generate, check_alone))
