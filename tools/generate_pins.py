"""Writes tables/artifact_pins.json: what upstream published, plus the families that this package ships.

Input: a pin file (repository, revision, digests, sizes) and the tokenizers under tables/artifacts/. `--check` without
the input: root digest and shipped files (`checked_output.py`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

from checked_output import Declined, run  # noqa: E402

from toktier.artifacts import pins  # noqa: E402

TABLE = REPOSITORY / "tables" / "artifact_pins.json"
SHIPPED = REPOSITORY / "tables" / "artifacts"
SOURCE = REPOSITORY.parent / "shared" / "data" / "artifact_pins.json"


def shipped_families(root: Path) -> dict[str, Any]:
    """Pin entries of the tokenizers that lie in the package."""
    entries: dict[str, Any] = {}
    for path in sorted(root.glob(f"*/{pins.TOKENIZER_FILE}")):
        data = path.read_bytes()
        pin = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        entries[path.parent.name] = {"files": {pins.TOKENIZER_FILE: pin}, "shipped": True}
    return entries


def upstream_families(path: Path) -> dict[str, Any]:
    """Pin entries of a published pin file, with one spelling for every kind of package."""
    families: dict[str, Any] = {}
    for name, entry in json.loads(path.read_text("utf-8"))["families"].items():
        known = {"repo_id", "revision", "files", "also_published_in", "converted_from"}
        if unknown := set(entry) - known:
            raise SystemExit(f"{path}: {name} has unknown members: {', '.join(sorted(unknown))}")
        entry = dict(entry)
        if "also_published_in" in entry:
            entry["also_published_in"] = [_publication(p) for p in entry["also_published_in"]]
        families[name] = entry
    return families


def _publication(entry: dict[str, str]) -> dict[str, str]:
    package = entry["dist"] if entry["kind"] == "pypi" else entry["package"]
    return {"kind": entry["kind"], "package": package, "version": entry["version"], "path": entry["path"]}


def table(families: dict[str, Any]) -> bytes:
    """The bytes of the table: readable, one order, root digest over the canonical form."""
    document: dict[str, Any] = {
        "schema": pins.SCHEMA,
        "schema_version": pins.SCHEMA_VERSION,
        "families": dict(sorted(families.items())),
    }
    document["root_digest"] = pins.root_digest(document)
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")


def check_alone() -> list[str]:
    """What can be said without the input: the digest holds and the shipped families are the files that lie there."""
    current = TABLE.read_bytes()
    parsed = pins.parse_pins(current, str(TABLE))
    entries = json.loads(current)["families"]
    shipped = {name: entry for name, entry in entries.items() if entry.get("shipped")}
    found = shipped_families(SHIPPED)
    problems = [f"{n}: the shipped file and its pin differ" for n in shipped.keys() | found.keys()
                if shipped.get(n) != found.get(n)]  # fmt: skip
    return problems if parsed.families else ["no families"]


def generate(arguments: argparse.Namespace) -> dict[Path, bytes]:
    if not arguments.source.is_file():
        raise Declined("upstream pins not compared, the published pin file is not at hand (--source)")
    return {TABLE: table(upstream_families(arguments.source) | shipped_families(SHIPPED))}


if __name__ == "__main__":
    raise SystemExit(run(__doc__, generate, check_alone, source=SOURCE))
