"""The report: rows, the facts that operators know by name, what is asked about one tokenizer, the status of the whole.

One document serves people, JSON and bundles. It is redacted here, once; exit codes belong to what was found before.
Not here: the text for people (`toktier_cli.doctor`), running checks (`runner`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toktier.diagnosis.context import Context
from toktier.diagnosis.model import Row, Status, worst
from toktier.diagnosis.redaction import Redaction
from toktier.version import VERSION

NAME, SCHEMA_VERSION = "doctor", 1

# Facts by the names that operators know, and the check that tells each. None where that check was not asked or does
# not know. Names are append-only.
FACTS: dict[str, str] = {
    "python_version": "python.version",
    "engine_identity": "build.identity",
    "engine_bound": "build.identity",
    "tokenizers_version": "dependencies.reference",
    "certified_reference_versions": "dependencies.reference",
    "config_file": "config.settings",
    "artifact_cache_dir": "directories.cache",
    "state_dir": "directories.state",
    "configured_offline": "network.policy",
    "devices": "gpu.devices",
    "driver_version": "gpu.driver",
    "cuda_available": "gpu.binding",
    "cuda_hardware_present": "gpu.hardware",
    "automatic_gpu_candidate": "gpu.route",
    "automatic_gpu_delivery": "gpu.nvrtc",
    "automatic_gpu_delivery_certification": "gpu.certification",
    "jit_toolchain_observed": "gpu.nvrtc",
    "jit_toolchain_constraint": "gpu.nvrtc",
    "jit_toolchain_satisfied": "gpu.nvrtc",
    "automatic_gpu_eligible": "gpu.route",
    "automatic_effective_backend": "gpu.route",
    "gpu_min_bytes": "gpu.route",
}
# What changes from one report to the next on one host, and says nothing about it.
VOLATILE = frozenset({"generated_at", "duration_ms", "exit_code", "redaction"})


@dataclass(frozen=True)
class Report:
    """`document` is redacted; `status` and `rows` are what was found."""

    rows: list[Row]
    status: Status
    document: dict[str, Any]


def make_report(rows: list[Row], context: Context, redaction: Redaction) -> Report:
    status = worst(rows)
    told = {row.check.id: row.finding.facts for row in rows}
    block = told.get("family.route", {}).get("block")
    document: dict[str, Any] = {
        "generated_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "toktier": {"version": VERSION},
        "status": status.value,
        "summary": {s.value: sum(1 for row in rows if row.finding.status is s) for s in Status},
        "checks": [_row(row) for row in rows],
        "facts": {name: told.get(check, {}).get(name) for name, check in FACTS.items()},
        "family": block,
    }
    document = redaction.document(document)
    document["redaction"] = redaction.to_dict()
    return Report(rows, status, document)


def _row(row: Row) -> dict[str, Any]:
    whole = row.to_dict()
    whole["facts"].pop("block", None)  # it is a member of its own
    return whole


def whole(report: Mapping[str, Any], exit_code: int) -> dict[str, Any]:
    """The document as the command prints it."""
    return {"schema": f"toktier.{NAME}", "schema_version": SCHEMA_VERSION, **report, "exit_code": exit_code}


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What differs between two reports: {path, here, there}, in path order. Checks are matched by id; how long they
    took and when they were asked is no difference. A value that only one report has stands beside None."""
    left, right = dict(_leaves(_keyed(here))), dict(_leaves(_keyed(there)))
    paths = sorted(left.keys() | right.keys())
    pairs = ((path, left.get(path), right.get(path)) for path in paths)
    return [{"path": path, "here": a, "there": b} for path, a, b in pairs if a != b]


def _keyed(report: Mapping[str, Any]) -> dict[str, Any]:
    return {**report, "checks": {str(check["id"]): check for check in report["checks"]}}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            if key not in VOLATILE:
                yield from _leaves(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
