"""Whether the registry tables hold: JSON Schemas, root digests, and what one table says about another.

Exit 0: they hold; 1: each problem is a line. It needs nothing but the tables. Not here: whether a table is what its
generator would write (`generate_*.py --check`), and whether upstream publishes what the pins say.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from toktier.artifacts import licences, pins, siblings  # noqa: E402
from toktier.artifacts.pins import TOKENIZER_FILE  # noqa: E402
from toktier.artifacts.siblings import SAME_BYTES, Basis  # noqa: E402
from toktier.errors import RegistryInvalid  # noqa: E402
from toktier.evidence import registry, registry_entry  # noqa: E402
from toktier.gpu import digests  # noqa: E402

TABLES = ("artifact_pins", "siblings", "family_licences")  # what each says of the others is checked too
REGISTRY = "support_registry"
KERNELS = "kernel_digests"
_PARSERS = {
    "artifact_pins": pins.parse_pins,
    "siblings": siblings.parse_siblings,
    "family_licences": licences.parse_licences,
    REGISTRY: registry.parse_registry,
    KERNELS: digests.parse_digests,
}


def problems(tables: Path) -> list[str]:
    """Everything that does not hold, one sentence each."""
    found: list[str] = []
    documents: dict[str, Any] = {}
    for name in (*TABLES, REGISTRY, KERNELS):
        path = tables / f"{name}.json"
        try:
            data = path.read_bytes()
            documents[name] = _load(data)
            _PARSERS[name](data, path.name)
        except OSError as error:
            found.append(f"{path.name} cannot be read: {error.strerror}")
        except (ValueError, RecursionError) as error:
            found.append(f"{path.name} is no strict JSON: {error}")
        except RegistryInvalid as error:
            found.append(error.message)
        if name in documents:
            found += [f"{path.name}: {text}" for text in _schema_faults(documents[name], tables, name)]
    if REGISTRY in documents:
        found += _entries(documents[REGISTRY])
    if not found:
        found += _cross_references(*(documents[name] for name in TABLES))
    return found


def _load(data: bytes) -> Any:
    """JSON without what readers disagree about: repeated names, NaN, infinities."""

    def no_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            raise ValueError(f"a repeated name among {', '.join(sorted(names))[:200]}")
        return dict(pairs)

    def no_constant(text: str) -> Any:
        raise ValueError(f"{text} is no JSON")

    return json.loads(data.decode("utf-8"), object_pairs_hook=no_repetition, parse_constant=no_constant)


def _schema_faults(document: Any, tables: Path, name: str) -> Iterator[str]:
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

    schema = json.loads((tables / "schemas" / f"{name}.schema.json").read_text("utf-8"))
    for error in Draft202012Validator(schema).iter_errors(document):
        yield f"{error.json_path}: {error.message[:200]}"


def _entries(document: Any) -> Iterator[str]:
    """Entries of the registry that a load would not believe, by name. Rows of no form are told by the schema."""
    with contextlib.suppress(KeyError, TypeError):
        pairs = [(row, version) for row in document["rows"] for version in row["references"]]
        for row, version in pairs:
            problem = registry_entry.form_problem(row, version)
            if problem is not None:
                yield f"{REGISTRY}.json: {row['artifact']['name']} on {row['backend']} beside {version}: {problem}"


def _cross_references(pinned: Any, sibling: Any, licence: Any) -> Iterator[str]:
    families, entries = pinned["families"], sibling["siblings"]
    own = {family["repo_id"]: name for name, family in families.items() if "repo_id" in family}
    if len(own) != sum("repo_id" in family for family in families.values()):
        yield "artifact_pins.json: a repository is pinned by two families"
    for entry in entries:
        yield from (f"siblings.json: {entry['repo_id']} {text}" for text in _sibling_faults(entry, families, own))
    for case in {entry["repo_id"].lower() for entry in entries}:
        spelled = [entry["repo_id"] for entry in entries if entry["repo_id"].lower() == case]
        if len(spelled) > 1:
            yield f"siblings.json: one repository in several spellings: {', '.join(spelled)}"
    for name in sorted(families.keys() ^ licence["families"].keys()):
        where = "has no entry" if name in families else "is no pinned family"
        yield f"family_licences.json: {name} {where}"


def _sibling_faults(entry: Any, families: Any, own: dict[str, str]) -> Iterator[str]:
    canonical = entry["canonical_family"]
    family = families.get(canonical)
    if entry["canonical_packaged"] != (family is not None):
        yield f"says canonical_packaged {entry['canonical_packaged']}, but {canonical} is" + (
            " not pinned" if family is None else " pinned"
        )
    anchor = own.get(entry["repo_id"])
    if anchor is not None and anchor != canonical:
        yield f"is of {canonical}, but pinned as {anchor}"
    if anchor is not None and families[anchor]["revision"] != entry["revision"]:
        yield f"is audited at {entry['revision']}, but pinned at {families[anchor]['revision']}"
    if family is None:
        return
    basis, source = entry["basis"], (entry["source_sha256"], entry["source_size"])
    pin = family["files"][TOKENIZER_FILE]
    is_tokenizer = (pin["sha256"], pin["size"]) == source
    converted = {(c["sha256"], c["size"]) for c in family.get("converted_from", ())}
    if basis == Basis.IDENTICAL and not is_tokenizer:
        yield f"is called identical, but its digest or size is not that of {canonical}'s {TOKENIZER_FILE}"
    if basis == Basis.IDENTICAL_SOURCE and source not in converted:
        yield f"is called identical_source, but {canonical} is not derived from a file of that digest and size"
    if basis not in SAME_BYTES and is_tokenizer:
        yield f"is called {basis}, but its file is {canonical}'s, byte for byte"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="?", type=Path, default=REPOSITORY / "tables", help="default: tables/")
    found = problems(parser.parse_args().tables)
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
