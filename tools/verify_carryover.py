"""Carry-over: when a standard record of the former engine identity still counts for the present one.

It counts for one further identity, where the quick level passed under that one and the compiled program tables are bit
for bit those of the former. evidence/<name>/programs.json lists the digest of the tables under each identity in order;
`tools/dev.py recertify` appends to it. Printed: every record that is carried. Not here: what the registry says of it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from toktier.evidence import document  # noqa: E402
from toktier.evidence.document import LEVELS, Evidence  # noqa: E402
from toktier.program.file import ProgramFile  # noqa: E402

PROGRAMS, FORMER = "programs.json", ".former.json"
SCHEMA = "toktier.program_tables"
LEAST = "standard"


def tables_digest(program: ProgramFile) -> str:
    """Hex digest of all tables of a program. META names the compiler's build and decides nothing."""
    state = hashlib.sha256()
    for tag in sorted(program.places):
        if tag != "META":
            data = program.section(tag)
            state.update(f"{tag} {len(data)}\n".encode("ascii"))
            state.update(data)
    return state.hexdigest()


def history(directory: Path, artifact_sha256: str) -> list[dict[str, str]]:
    """[{engine, tables}] in order, of this artifact; empty where nothing is recorded."""
    path = directory / PROGRAMS
    if not path.is_file():
        return []
    recorded: dict[str, Any] = json.loads(path.read_bytes())
    if recorded["schema"] != SCHEMA or recorded["artifact_sha256"] != artifact_sha256:
        return []
    return list(recorded["history"])


def record(directory: Path, artifact_sha256: str, engine: str, tables: str) -> None:
    """Appends the tables under an identity. Written again where the newest entry is of this identity."""
    entries = history(directory, artifact_sha256)
    if entries and entries[-1]["engine"] == engine:
        entries.pop()
    entries.append({"engine": engine, "tables": tables})
    written = {"schema": SCHEMA, "schema_version": 1, "artifact_sha256": artifact_sha256, "history": entries[-8:]}
    (directory / PROGRAMS).write_text(json.dumps(written, indent=1) + "\n")


def carried(quick: Evidence, former: Evidence, entries: list[dict[str, str]]) -> str | None:
    """Why `former` does not count beside `quick`; None where it does. `entries`: `history` of the artifact."""
    same = ("artifact_sha256", "fingerprint", "backend", "reference_version")
    if any(getattr(quick, name) != getattr(former, name) for name in same):
        return "the two records are of different things"
    if not quick.passed or not former.passed:
        return "one of the two records is no pass"
    if LEVELS.index(former.level) < LEVELS.index(LEAST):
        return f"the former record is of level {former.level}"
    if len(entries) < 2 or entries[-1]["engine"] != quick.engine:
        return "no tables are recorded under both identities"
    if entries[-2]["engine"] != former.engine:
        return "the former record is of an older identity than the one before this"
    if entries[-2]["tables"] != entries[-1]["tables"]:
        return "the compiled tables are not the same"
    return None


def former_of(path: Path) -> Path:
    """Where the record lies that the one at `path` replaced."""
    return path.with_name(path.name.removesuffix(".json") + FORMER)


def judged(path: Path, quick: Evidence) -> tuple[Evidence | None, str | None]:
    """The former record beside `path`, and why it does not count; (None, None) where there is none."""
    place = former_of(path)
    if not place.is_file():
        return None, None
    former = document.read(place.read_bytes(), place.name)
    return former, carried(quick, former, history(path.parent, quick.artifact_sha256))


def main() -> int:
    code = 0
    for place in sorted((REPOSITORY / "evidence").glob(f"*/*{FORMER}")):
        path = place.with_name(place.name.removesuffix(FORMER) + ".json")
        if not path.is_file():
            print(f"{place.relative_to(REPOSITORY)}: no record beside it")
            code = 1
            continue
        former, problem = judged(path, document.read(path.read_bytes(), path.name))
        assert former is not None
        print(f"{place.relative_to(REPOSITORY)}: {problem or f'carried from {former.engine[:12]}'}")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
