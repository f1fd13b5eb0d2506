"""One entry of the registry, held to its form and to the evidence that it was made from, before it is believed.

An entry says what evidence says of one artifact on one backend beside one reference version. The root digest speaks of
the table as a whole; this looks at the one entry that a load asks for, and at the bytes of its evidence that lie in the
installation: an entry that does not hold certifies nothing, and the others stay what they are. A load pays one or two
files of 15 kB. Not here: finding the row (`registry`), whose engine and reference it is of (`admission`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toktier import resources
from toktier.evidence.document import LEVELS, MAX_BYTES
from toktier.evidence.kernels import read_kernels
from toktier.regular_files import open_regular
from toktier.routing.vocabulary import BackendId, Status

STATUSES = (Status.CERTIFIED.value, Status.UNTESTED.value)
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_FILE = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9._+-]*", re.ASCII)  # a name, and no path out of its directory


def evidence_root() -> Path:
    """Where the evidence of this installation lies."""
    return resources.data_root() / "evidence"


def record_name(backend: str, version: str) -> str:
    """File name of the record of a backend beside a reference version (of kernels: `document.version_key`)."""
    return f"{backend}-{version}.json"


def form_problem(row: Mapping[str, Any], version: str) -> str | None:
    """Why the entry of a row is none that the generator writes; None where it is one."""
    try:
        return next(_problems(row, version), None)
    except (KeyError, TypeError, AttributeError) as error:
        return f"it lacks {error}" if isinstance(error, KeyError) else f"it has no form: {error}"


def _problems(row: Mapping[str, Any], version: str) -> Iterator[str]:
    entry = row["references"][version]
    if entry["status"] not in STATUSES:
        yield f"{str(entry['status'])[:40]!r} is no status"
    if entry["level"] not in LEVELS:
        yield f"{str(entry['level'])[:40]!r} is no level"
    for name in ("evidence", "passed_now", "engine_identity", "carried_from"):
        if not (_is_digest(entry[name]) or (name == "carried_from" and entry[name] is None)):
            yield f"its {name} is no digest"
    levels = entry["dispatch_levels"]
    if not (isinstance(levels, list) and all(isinstance(level, str) for level in levels)):
        yield "its dispatch_levels are no list of names"
    readings = entry["readings"]
    if type(readings["documents"]) is not int or any(type(n) is not int or n < 0 for n in readings.values()):
        yield "its readings are no counts"
    if not (entry["note"] is None or isinstance(entry["note"], str)):
        yield "its note is no text"
    if entry["status"] != Status.CERTIFIED and not entry["note"]:
        yield "it is not certified and does not say why"
    if row["backend"] == BackendId.GPU:
        try:
            read_kernels(entry["kernels"])
        except (TypeError, ValueError):
            yield "it names no kernels"
    if not _is_name(row["artifact"]["name"]):
        yield "its artifact has no name of a directory"
    files = entry["files"]
    if record_name(row["backend"], version) not in files or not all(
        _is_name(name) and _is_digest(digest) for name, digest in files.items()
    ):
        yield "it does not name its evidence"


def evidence_problem(row: Mapping[str, Any], version: str, root: Path | None = None) -> str | None:
    """Why the evidence of an entry of sound form is not what the entry was made from; None where it is."""
    directory = (evidence_root() if root is None else root) / row["artifact"]["name"]
    for name, digest in row["references"][version]["files"].items():
        try:
            with open_regular(directory / name) as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            return f"its evidence {name} cannot be read: {error.strerror}"
        if hashlib.sha256(data).hexdigest() != digest:
            return f"its evidence {name} was changed"
    return None


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _HEX.fullmatch(value) is not None


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _FILE.fullmatch(value) is not None
