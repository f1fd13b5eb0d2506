"""What a figure was measured on: processor, cores, caches, versions. No host name, no path, no user: figures travel."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engines import NAMES, Places


def facts() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "cores_used": len(os.sched_getaffinity(0)),
        "caches": _caches(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release().split('-')[0]} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
    }


def versions(places: Places, names: Iterable[str] = NAMES) -> dict[str, str | None]:
    """Of each engine; None: it is absent."""
    return {name: places.version(name) for name in names}


def engine_identity() -> str:
    """Of the engine that was measured: figures of another one say nothing about it."""
    from toktier.program.engine_identity import engine_identity as identity

    return str(identity())


def heading(schema: str, versions: dict[str, str | None]) -> dict[str, Any]:
    """How every document of results begins."""
    return {
        "schema": schema,
        "schema_version": 1,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": facts(),
        "engine_identity": engine_identity(),
        "versions": versions,
    }


def load_average() -> float:
    """Processes that wanted a processor in the last minute: above one, a run was disturbed."""
    return round(os.getloadavg()[0], 2)


def _processor() -> str:
    """Model name, with family and model numbers where the name is a general one."""
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, colon, value = line.partition(":")
            if colon:
                fields.setdefault(name.strip(), value.strip())
            elif fields:
                break
    except OSError:
        pass
    name = fields.get("model name") or platform.processor() or platform.machine()
    numbers = [
        f"{label} {fields[key]}" for key, label in (("cpu family", "family"), ("model", "model")) if key in fields
    ]
    return f"{name} ({', '.join(numbers)})" if numbers else name


def _caches() -> dict[str, str]:
    """Size of each level as the kernel tells it, of the first processor."""
    found: dict[str, str] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = ((index / part).read_text().strip() for part in ("level", "type", "size"))
        except OSError:
            continue
        found[f"L{level}{'' if kind == 'Unified' else kind[0].lower()}"] = size
    return found
