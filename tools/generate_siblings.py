"""Writes tables/siblings.json: the audited repositories that upstream published, with a root digest.

Input: a published sibling table (repository, revision, file, digest, size, canonical family, basis). `--check` without
the input: the table's own digest and shapes (`checked_output.py`). Not here: cross-references (`validate_registry.py`).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

from checked_output import Declined, run  # noqa: E402

from toktier.artifacts import siblings  # noqa: E402

TABLE = REPOSITORY / "tables" / "siblings.json"
SOURCE = REPOSITORY.parent / "shared" / "data" / "siblings.json"
MEMBERS = frozenset(
    [
        "repo_id",
        "revision",
        "source_file",
        "source_sha256",
        "source_size",
        "canonical_family",
        "basis",
        "canonical_packaged",
    ]
)


def table(published: dict[str, Any]) -> bytes:
    """The bytes of the table: readable, one order, root digest over the canonical form."""
    entries = published["siblings"]
    for entry in entries:
        if odd := set(entry) ^ MEMBERS:
            raise SystemExit(f"{entry.get('repo_id')}: unknown or missing members: {', '.join(sorted(odd))}")
    document: dict[str, Any] = {
        "schema": siblings.SCHEMA,
        "schema_version": siblings.SCHEMA_VERSION,
        "audit": audit(published["note"]),
        "siblings": sorted(entries, key=lambda entry: entry["repo_id"]),
    }
    document["root_digest"] = siblings.root_digest(document)
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")


def audit(note: str) -> dict[str, str]:
    """Who audited and when, as the published note says."""
    found = re.search(r"\((?P<source>[^()]+), audit date (?P<date>\d{4}-\d\d-\d\d)\)", note)
    if found is None:
        raise SystemExit("the published note names no audit and date")
    return {"source": found["source"], "date": found["date"]}


def generate(arguments: argparse.Namespace) -> dict[Path, bytes]:
    if not arguments.source.is_file():
        raise Declined("audited repositories not compared, the published sibling table is not at hand (--source)")
    return {TABLE: table(json.loads(arguments.source.read_text("utf-8")))}


def check_alone() -> list[str]:
    """What can be said without the input: the table is in the form that is written, and its digest holds."""
    current = TABLE.read_bytes()
    siblings.parse_siblings(current, str(TABLE))
    document = json.loads(current)
    form = (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")
    return [] if form == current else [f"{TABLE.name} is not in the form that the generator writes"]


if __name__ == "__main__":
    raise SystemExit(run(__doc__, generate, check_alone, source=SOURCE))
