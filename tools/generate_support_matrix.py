"""Writes docs/support-matrix.md from the pins, the audited repositories, the support registry and tables of the GPU.

Every pinned family with its repository, revision and digest, what evidence says of it on each backend, and which other
repositories hold the same bytes; then other certified artifacts, and what was covered. Of a GPU without evidence: what
the listed digests of kernels and the suitability of a tokenizer give, as at a load (`toktier.evidence.admission`). Not
here: what makes a status (`generate_registry.py`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

from checked_output import run  # noqa: E402
from generate_gpu_suitability import read_table  # noqa: E402
from generate_registry import TABLE, records  # noqa: E402

from toktier.artifacts.pins import Family, shipped_pins  # noqa: E402
from toktier.artifacts.siblings import SAME_BYTES, Sibling, shipped_siblings  # noqa: E402
from toktier.evidence.admission import Admission  # noqa: E402
from toktier.evidence.document import Evidence  # noqa: E402
from toktier.evidence.registry import parse_registry  # noqa: E402
from toktier.gpu.architectures import ARCHITECTURES  # noqa: E402
from toktier.gpu.digests import shipped_digests  # noqa: E402
from toktier.routing.vocabulary import CERTIFIED_REFERENCE_VERSIONS, BackendId, Status  # noqa: E402

PAGE = REPOSITORY / "docs" / "support-matrix.md"
Row = Mapping[str, Any]
HEAD = f"""# Support matrix

Written by `tools/generate_support_matrix.py` from the pins, the audited repositories and the support registry; what the
statuses mean is in [evidence.md](evidence.md). `toktier inspect FAMILY` says the same of an installation. Reference
versions: tokenizers {" and ".join(CERTIFIED_REFERENCE_VERSIONS)}.

"""


def status(row: Row | None, without: Status = Status.UNTESTED) -> str:
    """What a row says in a cell, with the levels; `without` evidence."""
    if row is None:
        return without.value
    entries = row["references"]
    certified = {v: e for v, e in entries.items() if e["status"] == "certified"}
    if not certified:
        return f"{without.value}: its evidence is of another engine"
    cells = []
    for version, entry in sorted(certified.items()):
        carried = f", carried from {entry['carried_from'][:12]}" if entry["carried_from"] else ""
        cells.append(f"{version} ({entry['level']}{carried})")
    return f"certified: {', '.join(cells)}"


def gpu_status(row: Row | None, sha256: str, suits: Mapping[str, str | None], listed: Sequence[str]) -> str:
    """The same of a GPU. `suits`: premise of the kernels that a tokenizer fails, None for none, by digest; `listed`:
    architectures whose kernels have listed digests."""
    if suits.get(sha256) is not None:
        return f"{Status.UNSUPPORTED.value}: kernels cannot follow it ({suits[sha256]})"
    if not listed:
        return status(row)
    text = status(row, Admission().status(BackendId.GPU))
    return text if row is not None or sha256 in suits else f"{text}, where the kernels can follow it"


def listed_architectures() -> list[str]:
    """Of the build that kernels are delivered with."""
    return [name for name in ARCHITECTURES if name in shipped_digests().builds[0].cubins]


def kernels(rows: list[Row]) -> Iterator[str]:
    yield "## Kernels of the GPU\n"
    builds = ", ".join(f"{build.distribution} {build.version}" for build in shipped_digests().builds)
    judged = sorted({key.partition("+")[2] for row in rows if row["backend"] == "gpu" for key in row["references"]})
    yield (
        f"Compiled and listed for {', '.join(listed_architectures())} by {builds}. Judged on "
        f"{', '.join(judged) if judged else 'no device: no row of the registry names a compute capability'}. A status "
        f"of {Status.COMPILED_UNJUDGED.value} serves under policy supported, after a self-test on the device, and not "
        "under policy certified.\n\n"
    )


def families(rows: list[Row]) -> Iterator[str]:
    by_digest = {(row["artifact"]["sha256"], row["backend"]): row for row in rows}
    suits, listed = read_table(), listed_architectures()
    yield "## Pinned families\n"
    yield "| family | repository at revision | SHA-256 of tokenizer.json | fast_cpu | gpu |\n|---|---|---|---|---|\n"
    for name, family in sorted(shipped_pins().families.items()):
        sha256 = family.tokenizer.sha256
        cpu = status(by_digest.get((sha256, "fast_cpu")))
        gpu = gpu_status(by_digest.get((sha256, "gpu")), sha256, suits, listed)
        yield f"| {name} | {_place(family)} | `{sha256}` | {cpu} | {gpu} |\n"
    yield "\n"


def _place(family: Family) -> str:
    if family.repo_id is None:
        return "shipped with this package" if family.shipped else "derived"
    return f"{family.repo_id} at `{(family.revision or '')[:12]}`"


def others(rows: list[Row]) -> Iterator[str]:
    unpinned = [row for row in rows if row["artifact"]["family"] is None]
    if not unpinned:
        return
    yield "## Artifacts that are not pinned\n"
    yield (
        "Named by the package that published the file, which says nothing of the model that the package is called "
        "after.\n\n| artifact | SHA-256 of tokenizer.json | fast_cpu | gpu |\n|---|---|---|---|\n"
    )
    suits, listed = read_table(), listed_architectures()
    by_digest = {(row["artifact"]["sha256"], row["backend"]): row for row in unpinned}
    for sha256, name in {row["artifact"]["sha256"]: row["artifact"]["name"] for row in unpinned}.items():
        cpu = status(by_digest.get((sha256, "fast_cpu")))
        gpu = gpu_status(by_digest.get((sha256, "gpu")), sha256, suits, listed)
        yield f"| {name} | `{sha256}` | {cpu} | {gpu} |\n"
    yield "\n"


def siblings() -> Iterator[str]:
    yield "## Repositories that are a family's tokenizer\n"
    yield (
        "By the same bytes, or the same source that the family is derived from, at the audited revision. Rows that the "
        "audit calls equivalent are claims about other bytes: those are certified by their fingerprint or not at all.\n"
        "\n| family | same bytes | called equivalent |\n|---|---|---|\n"
    )
    by_family: dict[str, list[Sibling]] = {}
    for sibling in shipped_siblings().by_repository.values():
        by_family.setdefault(sibling.canonical_family, []).append(sibling)
    for name in sorted(set(by_family) & set(shipped_pins().families)):
        same = sorted(s.repo_id for s in by_family[name] if s.basis in SAME_BYTES)
        other = sorted(s.repo_id for s in by_family[name] if s.basis not in SAME_BYTES)
        yield f"| {name} | {', '.join(same) or '-'} | {', '.join(other) or '-'} |\n"
    yield "\n"


def coverage(found: list[tuple[Path, Evidence]]) -> Iterator[str]:
    if not found:
        return
    yield "## What was compared\n"
    yield (
        "Sums over all suites of the newest evidence; routed checks were answered by the reference: no agreement.\n"
        "\n| artifact | backend | reference | level | engine | texts | UTF-8 bytes | ids | checks | routed |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n"
    )
    for path, e in found:
        r = e.readings
        yield (
            f"| {path.parent.name} | {e.backend.value} | {e.reference_version} | {e.level} | `{e.engine[:12]}` | "
            f"{r['documents']:,} | {r['utf8_bytes']:,} | {r['ids']:,} | {r['checks']:,} | {r['routed']:,} |\n"
        )
    yield "\n## Coverage figures\nFacts of the plan, by suite, beside the newest certified reference version.\n\n"
    newest = [(path, e) for path, e in found if e.reference_version == CERTIFIED_REFERENCE_VERSIONS[-1]]
    for path, e in newest:
        yield f"**{path.parent.name}** ({e.level})\n"
        for suite, facts in e.facts.items():
            shown = ", ".join(f"{name.replace('_', ' ')} {_value(value)}" for name, value in sorted(facts.items()))
            yield f"- {suite}: {shown}\n"
        yield "\n"


def _value(value: Any) -> str:
    return f"{value:,}" if type(value) is int else str(value)


def generate(_: argparse.Namespace) -> dict[Path, bytes]:
    rows = list(parse_registry(TABLE.read_bytes(), str(TABLE)).rows)
    parts = [HEAD, *families(rows), *others(rows), *kernels(rows), *siblings(), *coverage(records())]
    return {PAGE: ("".join(parts).rstrip("\n") + "\n").encode("utf-8")}


if __name__ == "__main__":
    raise SystemExit(run(__doc__ or "", generate, list))
