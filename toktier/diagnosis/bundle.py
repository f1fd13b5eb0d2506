"""The support bundle: what a ticket needs, as one tar that its sender can read before he sends it. It is never sent.

    report.json             the report, redacted
    doctor.schema.json      what its members mean
    installed.json          SHA-256 of every file of the installation
    certify/NAME.json       the last certifications on this host: outcome and counts, no text
    diagnostics.json        recorded fallbacks and errors: codes, sizes, times

The same report gives the same bytes: members in one order, no time, no owner. Not here: texts, artifacts, settings'
values, logs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toktier import diagnostics_ring, resources, storage
from toktier.artifacts.bundle_tar import archive_end, archive_size, member_header, padding
from toktier.artifacts.bundle_writer import PLAIN_SUFFIX, check_target
from toktier.diagnosis.context import Context
from toktier.diagnosis.redaction import Redaction
from toktier.diagnosis.report import whole
from toktier.errors import ConfigInvalid, EvidenceInvalid, ToktierError, UsageError
from toktier.labels import escaped, shown_path

BUNDLE_MODE = 0o600  # its reader decides who sees it
NAMED_BY = "--bundle"
CERTIFICATIONS = 10
RUNS = "certify"  # below the state directory
MAX_INSTALLED = 20_000
_SKIPPED = ("__pycache__",)


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    data: bytes

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "size": len(self.data), "sha256": hashlib.sha256(self.data).hexdigest()}


def check_name(out: Path) -> None:
    """UsageError unless the bundle may be written there under this name; EnvironmentFault where there is no
    directory. Asked before anything is gathered."""
    if not out.name.endswith(PLAIN_SUFFIX):
        raise UsageError(
            f"{shown_path(out)}: expected a name that ends in {PLAIN_SUFFIX}",
            details={"out": escaped(out)},
            remedy="toktier doctor --bundle support.tar",
        )
    try:
        check_target(out)
    except UsageError as error:
        error.remedy = "give --bundle another name"
        raise


def members(report: Mapping[str, Any], exit_code: int, context: Context, redaction: Redaction) -> list[Member]:
    """Everything that the bundle will hold, redacted, by name."""
    schema = (resources.tables_dir() / "schemas" / "doctor.schema.json").read_bytes()
    found = [
        Member("report.json", _json(whole(report, exit_code))),
        Member("doctor.schema.json", schema),
        Member("installed.json", _json(installed())),
    ]
    with contextlib.suppress(ConfigInvalid):
        state = context.settings.state_dir
        if state is not None:
            found.append(Member("diagnostics.json", _json(redaction.document(diagnostics_ring.read(state)))))
            found += [Member(f"certify/{n}.json", _json(redaction.document(d))) for n, d in _certifications(state)]
    return sorted(found, key=lambda member: member.name)


def write(out: Path, given: Sequence[Member]) -> str:
    """Writes the tar aside and renames it; its SHA-256. Raises UsageError or EnvironmentFault."""
    check_name(out)
    storage.require_space(out.parent, archive_size([len(member.data) for member in given]), named_by=NAMED_BY)
    parts = [p for m in given for p in (member_header(m.name, len(m.data)), m.data, bytes(padding(len(m.data))))]
    written = sum(map(len, parts))
    data = b"".join([*parts, archive_end(written)])
    storage.atomic_write(out, data, BUNDLE_MODE, named_by=NAMED_BY)
    return hashlib.sha256(data).hexdigest()


def installed() -> dict[str, str]:
    """SHA-256 of every file of the package and its tables, by its name below the installation."""
    package = Path(__file__).resolve().parents[1]
    roots = [package, package.with_name("toktier_cli"), resources.tables_dir()]
    found: dict[str, str] = {}
    with contextlib.suppress(ImportError, OSError):
        from toktier import _native  # in an installation for development it lies elsewhere

        path = Path(str(_native.__file__))
        found[f"toktier/{path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    for root in roots:
        for path in sorted(root.rglob("*")):
            if len(found) >= MAX_INSTALLED or any(part in _SKIPPED for part in path.parts):
                continue
            if path.is_file():
                name = f"{root.name}/{path.relative_to(root).as_posix()}"
                with contextlib.suppress(OSError):
                    found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return dict(sorted(found.items()))


def _certifications(state: Path) -> list[tuple[str, dict[str, Any]]]:
    """The newest runs that left evidence: what was compared, the counts, the outcome. Failing texts stay where they
    are."""
    from toktier.certify.evidence import FILE_NAME, read_evidence

    with contextlib.suppress(OSError):
        runs = [path for path in (state / RUNS).iterdir() if (path / FILE_NAME).is_file()]
        runs.sort(key=lambda path: (path / FILE_NAME).stat().st_mtime, reverse=True)
        found = []
        for number, path in enumerate(runs[:CERTIFICATIONS]):
            try:
                document, _ = read_evidence(path / FILE_NAME)
            except EvidenceInvalid as error:
                found.append((f"{number:02}", {"problem": error.code}))
                continue
            except ToktierError:
                continue
            plan = document["plan"]
            told = {key: plan[key] for key in ("artifact", "backend", "engine", "reference", "level")}
            told |= {key: document[key] for key in ("digest", "outcome", "totals", "build")}
            told["reasons"] = [{key: reason[key] for key in ("code", "suite")} for reason in document["reasons"]]
            found.append((f"{number:02}", told))
        return found
    return []


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode("ascii")
