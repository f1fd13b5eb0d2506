"""Writes tables/kernel_budget.json: registers and shared memory of each kernel, by architecture, of the pinned NVRTC.

What ptxas says when it is asked to (-v), in a build that is never run: asking changes the bytes. No kernel may keep
anything in local memory, the stack and spilled registers; where one does, nothing is written. A test holds kernels to
the table. Not here: what is run (`generate_kernel_digests.py`).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

import nvrtc_builds  # noqa: E402
from checked_output import Declined, run  # noqa: E402
from generate_kernel_digests import toolchain_of  # noqa: E402

from toktier.gpu.architectures import ARCHITECTURES  # noqa: E402
from toktier.gpu.kernel_sources import read_sources  # noqa: E402
from toktier.gpu.nvrtc import compile_kernels  # noqa: E402
from toktier.gpu.toolchain import Toolchain  # noqa: E402

TABLE = REPOSITORY / "tables" / "kernel_budget.json"
SCHEMA, SCHEMA_VERSION = "toktier.kernel_budget", 1
VERBOSE = "--ptxas-options=-v"
_KERNEL = re.compile(r"Compiling entry function '(\w+)' for 'sm_\d+'")
_LOCAL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Use:
    """Of one kernel. `local`: bytes of stack, spill stores and spill loads together."""

    registers: int
    shared: int
    local: int


def uses(log: str) -> dict[str, Use]:
    """By kernel, from the log of a verbose build. ValueError where it tells of a kernel and not all of it."""
    found: dict[str, Use] = {}
    kernel, local = None, None
    for line in log.splitlines():
        if match := _KERNEL.search(line):
            if kernel is not None:
                raise ValueError(f"nothing is said of {kernel}")
            kernel, local = match[1], None
        elif kernel is not None and (match := _LOCAL.search(line)):
            local = sum(int(part) for part in match.groups())
        elif kernel is not None and (match := _USED.search(line)):
            if local is None:
                raise ValueError(f"nothing is said of the stack of {kernel}")
            shared = _SHARED.search(line)
            found[kernel] = Use(int(match[1]), int(shared[1]) if shared else 0, local)
            kernel = None
    if kernel is not None or not found:
        raise ValueError("the log tells of no kernel" if kernel is None else f"nothing is said of {kernel}")
    return found


def measured(toolchain: Toolchain) -> dict[str, dict[str, Use]]:
    """By architecture and kernel."""
    sources = read_sources()

    def one(architecture: str) -> dict[str, Use]:
        return uses(compile_kernels(toolchain, sources, architecture, more_options=(VERBOSE,)).log)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(ARCHITECTURES, pool.map(one, ARCHITECTURES), strict=True))


def in_local_memory(budget: dict[str, dict[str, Use]]) -> list[str]:
    """Kernels that keep something there, each with its architecture and bytes."""
    return [
        f"{kernel} on {architecture}: {use.local} bytes"
        for architecture, kernels in budget.items()
        for kernel, use in sorted(kernels.items())
        if use.local
    ]


def generate(_: argparse.Namespace) -> dict[Path, bytes]:
    distribution, version = nvrtc_builds.pinned()
    toolchain = toolchain_of(distribution, version)
    if toolchain is None:
        raise Declined(f"{distribution} {version} is not at hand (tools/dev.py kernels brings it)")
    budget = measured(toolchain)
    if spilled := in_local_memory(budget):
        raise SystemExit("error: local memory is used: " + "; ".join(spilled))
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "nvrtc": version,
        "kernels": {
            architecture: {
                kernel: {"registers": use.registers, "shared_bytes": use.shared} for kernel, use in kernels.items()
            }
            for architecture, kernels in budget.items()
        },
    }
    return {TABLE: (json.dumps(document, indent=1, sort_keys=True) + "\n").encode("ascii")}


def check_alone() -> list[str]:
    """What can be said without a toolchain: it is of the pinned NVRTC and of every architecture."""
    document = json.loads(TABLE.read_bytes())
    if document["nvrtc"] != nvrtc_builds.pinned()[1] or set(document["kernels"]) != set(ARCHITECTURES):
        return [f"{TABLE.name} is of another NVRTC or of other architectures; run tools/dev.py kernels"]
    return []


if __name__ == "__main__":
    raise SystemExit(run(__doc__, generate, check_alone))
