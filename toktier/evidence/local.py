"""Evidence made on this host: kept under the state root, one file for an artifact, a backend and a reference version.

    evidence/<sha256 of the tokenizer.json>/<backend>.<reference version>.json
    evidence/<sha256 of the tokenizer.json>/gpu.<reference version>+sm_90.json     one for each compute capability
    evidence/fingerprint-<fingerprint>/…       the same file again: other bytes of the same tokenizer find it

A file counts only while nobody but this user or root could have written it: evidence of others is data. It expires when
engine or reference change, never by date. Not here: making it (`toktier.certify`), judging it (`admission`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toktier import storage
from toktier.canonical import canonical_json
from toktier.errors import EvidenceIncomplete, EvidenceInvalid
from toktier.evidence import document
from toktier.evidence.document import Evidence
from toktier.program.trust import only_owner_writes
from toktier.routing.vocabulary import BackendId

DIRECTORY = "evidence"
_FINGERPRINT = "fingerprint-"


@dataclass(frozen=True, slots=True)
class Found:
    """A file of local evidence: what it says, or `problem`: why it does not count."""

    path: Path
    evidence: Evidence | None
    problem: str | None = None


def store(given: Mapping[str, Any], state_dir: Path, required: Iterable[str] = ()) -> Path:
    """Keeps evidence of a run on this host, from then on believed; gives the file.

    `required`: names of the suites without which a run is no certification. Raises EvidenceInvalid for what does not
    hold or is no pass, EvidenceIncomplete where a required suite is missing, EnvironmentFault.
    """
    evidence = document.of_document(given, "this evidence")
    if not evidence.passed:
        raise EvidenceInvalid("only evidence of a pass is kept", remedy="toktier certify shows what differed")
    missing = sorted(set(required) - set(evidence.suites))
    if missing:
        raise EvidenceIncomplete(
            f"a part of the suites is no certification: {', '.join(missing)} did not run",
            details={"missing": missing},
            remedy="run toktier certify without --suite",
        )
    data = canonical_json(dict(given)) + b"\n"
    places = [
        state_dir / DIRECTORY / key / _name(evidence)
        for key in (_FINGERPRINT + evidence.fingerprint, evidence.artifact_sha256)
    ]
    for path in places:
        storage.make_directory(path.parent)
        storage.atomic_write(path, data)
    return places[-1]


def find(
    state_dir: Path, backend: BackendId, reference_version: str, sha256: str, fingerprint: str | None
) -> Found | None:
    """The evidence of these bytes, else of this fingerprint; None where there is none. Writes nothing, never raises."""
    for key in _keys(sha256, fingerprint):
        found = _read(state_dir / DIRECTORY / key / f"{backend.value}.{reference_version}.json")
        if found is not None:
            return _own(found, backend, reference_version, sha256, fingerprint)
    return None


def find_kernels(state_dir: Path, reference_version: str, sha256: str, fingerprint: str | None) -> Iterator[Found]:
    """The evidence of kernels, one for each compute capability; that of these bytes before that of the fingerprint."""
    for key in _keys(sha256, fingerprint):
        for path in _files(state_dir / DIRECTORY / key):
            if path.name.startswith(f"{BackendId.GPU.value}.{reference_version}+"):
                found = _read(path)
                if found is not None:
                    yield _own(found, BackendId.GPU, reference_version, sha256, fingerprint)


def _keys(sha256: str, fingerprint: str | None) -> list[str]:
    return [sha256] if fingerprint is None else [sha256, _FINGERPRINT + fingerprint]


def _own(found: Found, backend: BackendId, reference_version: str, sha256: str, fingerprint: str | None) -> Found:
    """What was found, unless it is of something else than the name of its file says."""
    told = found.evidence
    if told is not None and (
        told.backend is not backend
        or told.reference_version != reference_version
        or found.path.name != _name(told)
        or (told.artifact_sha256 != sha256 and (fingerprint is None or told.fingerprint != fingerprint))
    ):
        return Found(found.path, None, "it is of something else than its name says")
    return found


def of_artifact(state_dir: Path, sha256: str) -> list[Found]:
    """Every file of evidence of these bytes, whatever engine it is of; the copy under the fingerprint where it alone
    counts."""
    found = [one for path in _files(state_dir / DIRECTORY / sha256) if (one := _read(path)) is not None]
    sound = {one.path.name for one in found if one.evidence is not None}
    return found + [copy for copy in _copies(state_dir, sha256) if copy.path.name not in sound]


def everything(state_dir: Path) -> Iterator[Found]:
    """Every file of local evidence, by artifact."""
    with contextlib.suppress(OSError):
        for directory in sorted((state_dir / DIRECTORY).iterdir()):
            if not directory.name.startswith(_FINGERPRINT):
                yield from of_artifact(state_dir, directory.name)


def remove(state_dir: Path, sha256: str) -> int:
    """Forgets all evidence of these bytes; the number of files that were there. Raises EnvironmentFault."""
    found = {one.path for one in of_artifact(state_dir, sha256)}
    for path in found | {copy.path for copy in _copies(state_dir, sha256)}:
        _unlink(path)
    return len({path.name for path in found})


def _copies(state_dir: Path, sha256: str) -> Iterator[Found]:
    """The files under fingerprints that are of these bytes. All are read: what names the fingerprint may be damaged."""
    directories: list[Path] = []
    with contextlib.suppress(OSError):
        directories = sorted((state_dir / DIRECTORY).glob(f"{_FINGERPRINT}*"))
    for path in (path for directory in directories for path in _files(directory)):
        found = _read(path)
        if found is not None and found.evidence is not None and found.evidence.artifact_sha256 == sha256:
            yield found


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty
            path.parent.rmdir()
    except OSError as error:
        raise storage.environment_fault(error, "remove", path) from None


def _name(evidence: Evidence) -> str:
    return f"{evidence.backend.value}.{document.version_key(evidence.reference_version, evidence.kernels)}.json"


def _files(directory: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(path for path in directory.iterdir() if path.suffix == ".json")
    return []


def _read(path: Path) -> Found | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return Found(path, None, f"it cannot be read: {error.strerror}")
    try:
        if not only_owner_writes(os.fstat(descriptor)):
            return Found(path, None, "somebody else could have written it")
        data = _contents(descriptor)
    except OSError as error:
        return Found(path, None, f"it cannot be read: {error.strerror}")
    finally:
        os.close(descriptor)
    try:
        return Found(path, document.read(data, str(path)))
    except EvidenceInvalid as error:
        return Found(path, None, str(error.details["problem"]))


def _contents(descriptor: int) -> bytes:
    """All of a regular file, and one byte more than evidence may have at most."""
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        return file.read(document.MAX_BYTES + 1)
