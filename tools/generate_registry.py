"""Writes tables/support_registry.json from evidence/<name>/<backend>-<reference version>.json.

A row is an artifact on a backend, with an entry for each reference version, and of a GPU for each compute capability
(gpu-0.23.3+sm_90.json): certified where evidence of the engine
identity of this checkout is there, untested where its evidence is of another, and the entry says so. `--check`
compares (`checked_output.py`); `--release-check` also demands that every entry is certified, and that the tokenizers
which need no network have one for each reference version. Not here: making evidence (`tools/dev.py recertify`).
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

from checked_output import run  # noqa: E402
from verify_carryover import FORMER, PROGRAMS, former_of, judged  # noqa: E402

from toktier.artifacts.pins import Pins, shipped_pins  # noqa: E402
from toktier.certify.suites import SUITES  # noqa: E402
from toktier.errors import EvidenceInvalid, RegistryInvalid  # noqa: E402
from toktier.evidence import document, registry  # noqa: E402
from toktier.evidence.document import Evidence, version_key  # noqa: E402
from toktier.evidence.registry_entry import record_name  # noqa: E402
from toktier.gpu.host_identity import host_digest  # noqa: E402
from toktier.program.engine_identity import digest_of, identity_document  # noqa: E402
from toktier.routing.vocabulary import CERTIFIED_REFERENCE_VERSIONS, Status  # noqa: E402

EVIDENCE = REPOSITORY / "evidence"
TABLE = REPOSITORY / "tables" / registry.FILE_NAME


def needed() -> list[str]:
    """Families that a host without a hub can have: shipped, or inside a wheel."""
    return [name for name, family in sorted(shipped_pins().families.items()) if family.shipped or family.pypi]


def records(root: Path = EVIDENCE) -> list[tuple[Path, Evidence]]:
    """Every record of evidence with its file. SystemExit for one that does not hold or lies in the wrong place."""
    found = []
    for path in sorted(root.glob("*/*.json")):
        if path.name == PROGRAMS or path.name.endswith(FORMER):
            continue
        where = path.relative_to(root).as_posix()
        try:
            evidence = document.read(path.read_bytes(), where)
        except EvidenceInvalid as error:
            raise SystemExit(f"error: {error}") from None
        _check_place(path, evidence, shipped_pins())
        found.append((path, evidence))
    return found


def _check_place(path: Path, evidence: Evidence, pins: Pins) -> None:
    """A pinned artifact lies under its family's name, no other one does, and every record is a pass of one engine."""
    name, where = path.parent.name, f"{path.parent.name}/{path.name}"
    family = pins.tokenizer_family(evidence.artifact_sha256)
    if name != (evidence.artifact_name if family is None else family.name) or (
        family is None and name in pins.families
    ):
        raise SystemExit(f"error: {where} is of {evidence.artifact_name} ({evidence.artifact_sha256[:12]})")
    if path.name != record_name(evidence.backend, version_key(evidence.reference_version, evidence.kernels)):
        raise SystemExit(f"error: {where} is of {evidence.backend.value} and tokenizers {evidence.reference_version}")
    if not evidence.passed:
        raise SystemExit(f"error: {where} is of a run that did not pass")
    built = evidence.build.get("identity")
    if built != evidence.engine:
        raise SystemExit(f"error: {where} was made with a native module built from other sources ({built})")


def entry(path: Path, evidence: Evidence, engine: str, suites: set[str], host: str | None = None) -> dict[str, Any]:
    """What the registry says of one reference version. `host`: identity of the host side of kernels in this checkout,
    None: whatever the evidence says."""
    note, carried, shown, places = None, None, evidence, [path]
    missing = sorted(suites - set(evidence.suites))
    if evidence.engine != engine:
        note = f"evidence is of the engine {evidence.engine[:12]}, this is {engine[:12]}: recertify"
    elif evidence.kernels is not None and host not in (None, evidence.kernels.host):
        note = f"evidence is of the host side {evidence.kernels.host[:12]} of the kernels: recertify"
    elif missing:
        note = f"evidence lacks the suites {', '.join(missing)}: recertify"
    elif evidence.level == "quick":
        former, problem = judged(path, evidence)
        if former is not None and problem is None:
            shown, carried, places = former, former.engine, [path, former_of(path)]
            note = f"level {former.level} carried from the engine {former.engine[:12]}: quick passed, tables are equal"
    of_kernels = {} if evidence.kernels is None else {"kernels": evidence.kernels.to_dict()}
    return {
        "status": (Status.CERTIFIED if note is None or carried is not None else Status.UNTESTED).value,
        "evidence": shown.digest,
        "passed_now": evidence.digest,
        "level": shown.level,
        "engine_identity": evidence.engine,
        "carried_from": carried,
        "dispatch_levels": list(evidence.dispatch_levels),
        "files": {place.name: hashlib.sha256(place.read_bytes()).hexdigest() for place in places},
        "readings": {name: shown.readings[name] for name in ("documents", "utf8_bytes", "ids", "checks", "routed")},
        "note": note,
        **of_kernels,
    }


def table(found: list[tuple[Path, Evidence]], engine: str, suites: set[str], host: str | None = None) -> bytes:
    """The bytes of the registry. `host`: as for `entry`."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for path, evidence in found:
        family = shipped_pins().tokenizer_family(evidence.artifact_sha256)
        row = rows.setdefault(
            (path.parent.name, evidence.backend.value),
            {
                "artifact": {
                    "name": path.parent.name,
                    "family": None if family is None else family.name,
                    "sha256": evidence.artifact_sha256,
                    "fingerprint": evidence.fingerprint,
                },
                "backend": evidence.backend.value,
                "references": {},
            },
        )
        if row["artifact"]["sha256"] != evidence.artifact_sha256:
            raise SystemExit(f"error: records of two artifacts lie in evidence/{path.parent.name}")
        key = version_key(evidence.reference_version, evidence.kernels)
        row["references"][key] = entry(path, evidence, engine, suites, host)
    for row in rows.values():
        certified = [v for v, e in sorted(row["references"].items()) if e["status"] == Status.CERTIFIED]
        whole = set(CERTIFIED_REFERENCE_VERSIONS) <= {key.partition("+")[0] for key in certified}
        row["status"] = (Status.CERTIFIED if whole else Status.UNTESTED).value
        levels = [set(e["dispatch_levels"]) for e in row["references"].values()]
        row["constraints"] = {
            "reference_versions": certified,
            "dispatch_levels": sorted(set.intersection(*levels)),
        }
    document = {
        "schema": registry.SCHEMA,
        "schema_version": registry.SCHEMA_VERSION,
        "engine_identity": engine if rows else None,
        "rows": [rows[key] for key in sorted(rows)],
    }
    return registry.sealed(document)


def generate(_: argparse.Namespace | None = None) -> dict[Path, bytes]:
    engine = digest_of(identity_document(REPOSITORY))
    return {TABLE: table(records(), engine, {suite.name for suite in SUITES}, host_digest(REPOSITORY))}


def release_problems(data: bytes) -> list[str]:
    """What keeps a release back: entries that are not certified, tokenizers or reference versions without one."""
    rows = registry.parse_registry(data).rows
    problems = []
    for row in rows:
        for version in CERTIFIED_REFERENCE_VERSIONS:
            keys = [key for key in row["references"] if key.partition("+")[0] == version]
            one = row["references"][keys[0]] if keys else None
            if one is None or one["status"] != Status.CERTIFIED:
                told = "no evidence" if one is None else one["note"]
                problems.append(f"{row['artifact']['name']} on {row['backend']} beside {version}: {told}")
    names = {row["artifact"]["family"] for row in rows}
    return problems + [f"{name}: no evidence" for name in needed() if name not in names]


def main() -> int:
    if "--release-check" not in sys.argv[1:]:
        return run(__doc__ or "", generate, list)
    (data,) = generate().values()
    try:
        problems = release_problems(data)
    except RegistryInvalid as error:
        problems = [str(error)]
    if not TABLE.is_file() or TABLE.read_bytes() != data:
        problems.append(f"{TABLE.name} differs from what is generated")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
