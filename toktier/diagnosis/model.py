"""The vocabulary of diagnosis: statuses in the order of severity, a check, and what one look at a host gives.

Not here: the checks (`checks`), running them (`runner`), telling them to people (`toktier_cli.doctor`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toktier.diagnosis.context import Context


class Status(enum.StrEnum):
    """What a check says. `skip`: it does not apply here. `unknown`: it could not look."""

    OK = "ok"
    SKIP = "skip"
    WARN = "warn"
    UNKNOWN = "unknown"
    FAIL = "fail"

    @property
    def severity(self) -> int:
        return list(Status).index(self)


class Code(enum.StrEnum):
    """Why a check is not ok. Append-only: a code is never renamed, reused or removed."""

    CHECK_CRASHED = "CHECK_CRASHED"
    CHECK_TIMED_OUT = "CHECK_TIMED_OUT"
    PYTHON_UNSUPPORTED = "PYTHON_UNSUPPORTED"
    PLATFORM_UNSUPPORTED = "PLATFORM_UNSUPPORTED"
    NATIVE_MISSING = "NATIVE_MISSING"
    ENGINE_NOT_BOUND = "ENGINE_NOT_BOUND"
    REFERENCE_MISSING = "REFERENCE_MISSING"
    REFERENCE_UNCERTIFIED = "REFERENCE_UNCERTIFIED"
    DISTRIBUTION_MISSING = "DISTRIBUTION_MISSING"
    DISTRIBUTION_TWICE = "DISTRIBUTION_TWICE"
    DISTRIBUTION_DEPRECATED = "DISTRIBUTION_DEPRECATED"
    CONFIG_INVALID = "CONFIG_INVALID"
    VARIABLE_UNKNOWN = "VARIABLE_UNKNOWN"
    DIRECTORY_NONE = "DIRECTORY_NONE"
    DIRECTORY_NOT_A_DIRECTORY = "DIRECTORY_NOT_A_DIRECTORY"
    DIRECTORY_UNREADABLE = "DIRECTORY_UNREADABLE"
    DIRECTORY_READ_ONLY = "DIRECTORY_READ_ONLY"
    DIRECTORY_OPEN_TO_ALL = "DIRECTORY_OPEN_TO_ALL"
    PINS_INVALID = "PINS_INVALID"
    ARTIFACT_DAMAGED = "ARTIFACT_DAMAGED"
    ARTIFACT_ABSENT = "ARTIFACT_ABSENT"
    ARTIFACT_REFUSED = "ARTIFACT_REFUSED"
    PROGRAM_NOT_OWN = "PROGRAM_NOT_OWN"
    REGISTRY_INVALID = "REGISTRY_INVALID"
    EVIDENCE_NOT_BELIEVED = "EVIDENCE_NOT_BELIEVED"
    OTHER_BACKEND_SERVES = "OTHER_BACKEND_SERVES"
    NOTHING_SERVES = "NOTHING_SERVES"
    DRIVER_NOT_USABLE = "DRIVER_NOT_USABLE"
    DRIVER_TIMED_OUT = "DRIVER_TIMED_OUT"
    GPU_GATE_CLOSED = "GPU_GATE_CLOSED"
    FALLBACKS_RECORDED = "FALLBACKS_RECORDED"
    NOT_APPLICABLE = "NOT_APPLICABLE"
    EVIDENCE_OF_OTHER_ENGINE = "EVIDENCE_OF_OTHER_ENGINE"
    STORE_ON_NETWORK = "STORE_ON_NETWORK"
    STORE_UNREADABLE = "STORE_UNREADABLE"
    STORE_DAMAGED = "STORE_DAMAGED"
    STORE_FORMAT_UNSUPPORTED = "STORE_FORMAT_UNSUPPORTED"
    STORE_OPEN_TO_OTHERS = "STORE_OPEN_TO_OTHERS"


@dataclass(frozen=True, slots=True)
class Reason:
    """`measured`: what was seen; `expected`: what would have been ok. Scalars, so that tools can compare."""

    code: Code
    measured: str | int | None = None
    expected: str | int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"code": self.code.value, "measured": self.measured, "expected": self.expected}


@dataclass(frozen=True, slots=True)
class Remedy:
    """What mends it, for people; `command`: a line to paste, None where none would do."""

    text: str
    command: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "command": self.command}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check gives. `facts` under names that the check declares; others never leave the process."""

    status: Status
    summary: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    remedy: Remedy | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One row. `id` is frozen: area, a dot, a name. `required`: it counts for the status of the whole. `facts`: the
    names it may report. `with_family`: it is asked only about a tokenizer that the caller named."""

    id: str
    asks: str
    look: Callable[[Context], Finding]
    required: bool = True
    facts: tuple[str, ...] = ()
    with_family: bool = False

    @property
    def area(self) -> str:
        return self.id.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Row:
    """A check and what it gave, `duration_ms` whole milliseconds after it began."""

    check: Check
    finding: Finding
    duration_ms: int

    def to_dict(self) -> dict[str, Any]:
        found = self.finding
        return {
            "id": self.check.id,
            "area": self.check.area,
            "required": self.check.required,
            "status": found.status.value,
            "summary": found.summary,
            "facts": {name: found.facts[name] for name in self.check.facts if name in found.facts},
            "reasons": [reason.to_dict() for reason in found.reasons],
            "remedy": None if found.remedy is None else found.remedy.to_dict(),
            "duration_ms": self.duration_ms,
        }


def worst(rows: list[Row]) -> Status:
    """The status of the whole: the worst of the required rows; what was skipped says nothing."""
    told = [row.finding.status for row in rows if row.check.required and row.finding.status is not Status.SKIP]
    return max(told, key=lambda status: status.severity, default=Status.OK)


def counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def skip(summary: str, **facts: Any) -> Finding:
    return Finding(Status.SKIP, summary, facts)


def ok(summary: str, **facts: Any) -> Finding:
    return Finding(Status.OK, summary, facts)
