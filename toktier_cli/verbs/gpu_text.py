"""What is said of kernels, in documents and to people: one row for each cubin."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

from toktier.errors import EnvironmentFault, KernelsUnavailable
from toktier.gpu import delivery, jit
from toktier.gpu.cubin import problem_of
from toktier.gpu.cubin_cache import CubinCache, Damaged, key_of, size_of
from toktier.gpu.digests import Finding, shipped_digests
from toktier.gpu.kernel_sources import read_sources
from toktier.gpu.reproduce import Reproduced
from toktier.gpu.toolchain import Toolchain
from toktier.labels import shown
from toktier.routing.vocabulary import Status
from toktier_cli.table import columns, size

DIGEST_SHOWN = 12


def _status(listed: bool) -> str:
    return (Status.COMPILED_UNJUDGED if listed else Status.EXPERIMENTAL).value


def compiled_row(made: Reproduced, finding: Finding, path: Path | None) -> dict[str, Any]:
    listed = finding is Finding.LISTED
    return {
        "architecture": made.architecture,
        "sha256": made.sha256,
        "bytes": len(made.data),
        "kernels": list(made.facts.kernels),
        "abi": list(made.facts.abi),
        "compiler": made.compiler,
        "build": made.facts.build,
        "finding": finding.value,
        "listed": listed,
        "status": _status(listed),
        "path": None if path is None else str(path),
        "seconds": round(made.seconds, 3),
    }


def compiled_text(toolchain: dict[str, str], rows: list[dict[str, Any]]) -> str:
    table = [
        (
            row["architecture"],
            size(row["bytes"]),
            row["sha256"][:DIGEST_SHOWN],
            row["status"],
            "kept" if row["path"] else "not kept",
            f"{row['seconds']:.1f} s",
        )
        for row in rows
    ]
    return f"NVRTC {rows[0]['compiler']}, found via {toolchain['found_via']}: {toolchain['library']}\n" + columns(
        ("ARCH", "SIZE", "SHA-256", "STATUS", "CACHE", "TIME"), table, right=(1, 5)
    )


def shipped_rows() -> list[dict[str, Any]]:
    """Cubins of the installation."""
    rows = []
    for architecture in delivery.prebuilt_architectures():
        data = b""
        try:
            data = delivery.prebuilt_path(architecture).read_bytes()
            delivery.prebuilt(architecture)
            problem = None
        except (KernelsUnavailable, OSError) as error:
            problem = str(error)
        sha256 = hashlib.sha256(data).hexdigest()
        listed = shipped_digests().is_listed(sha256, architecture)
        rows.append(
            {
                "architecture": architecture,
                "sha256": sha256,
                "bytes": len(data),
                "listed": listed,
                "status": _status(listed),
                "problem": problem,
            }
        )
    return rows


def cached_rows(cache: CubinCache | None, toolchain: Toolchain | None) -> list[dict[str, Any]]:
    """Everything in the cache, whether it holds or not."""
    if cache is None:
        return []
    current = _current_keys(toolchain)
    return [_cached_row(cache, key, current) for key in cache.entries()]


def _current_keys(toolchain: Toolchain | None) -> set[str]:
    """Keys that the installed toolchain would ask for."""
    if toolchain is None:
        return set()
    from toktier.gpu.architectures import ARCHITECTURES

    sources = read_sources()
    with contextlib.suppress(EnvironmentFault):
        return {key_of(jit.inputs_of(toolchain, sources, architecture)) for architecture in ARCHITECTURES}
    return set()


def _cached_row(cache: CubinCache, key: str, current: set[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "key": key,
        "architecture": None,
        "sha256": None,
        "bytes": size_of(cache.path_of(key)),
        "compiler": None,
        "stored": None,
        "used": False,
        "listed": False,
        "status": _status(False),
        "problem": None,
    }
    try:
        stored = cache.load(key)
        if stored is None:
            raise Damaged("it has vanished")
        architecture = str(stored.record["inputs"]["architecture"])
        problem = problem_of(stored.data, architecture)
        if problem is not None:
            raise Damaged(problem)
        listed = shipped_digests().is_listed(stored.record["sha256"], architecture)
        told = stored.record.get("nvrtc")
        row |= {
            "architecture": architecture,
            "sha256": stored.record["sha256"],
            "bytes": len(stored.data),
            "compiler": shown(str(told.get("compiler"))) if isinstance(told, dict) else None,
            "stored": shown(str(stored.record.get("stored"))),
            "used": key in current,
            "listed": listed,
            "status": _status(listed),
        }
    except (Damaged, KeyError, TypeError) as damage:
        row["problem"] = str(damage)
    return row


def list_text(shipped: list[dict[str, Any]], cached: list[dict[str, Any]]) -> str:
    rows = [_line("shipped", row, "-") for row in shipped]
    rows += [_line("compiled here", row, "yes" if row["used"] else "no") for row in cached]
    if not rows:
        return ""
    return columns(("WHERE", "ARCH", "SIZE", "SHA-256", "STATUS", "USED", "PROBLEM"), rows, right=(2,))


def _line(where: str, row: dict[str, Any], used: str) -> tuple[str, ...]:
    return (
        where,
        row["architecture"] or "-",
        size(row["bytes"]),
        (row["sha256"] or "-")[:DIGEST_SHOWN],
        row["status"],
        used,
        shown(row["problem"]) if row["problem"] else "-",
    )
