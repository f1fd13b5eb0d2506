"""The sibling table: repositories whose tokenizer was audited, at which revision, and which pinned family it is.

Read from tables/siblings.json, which tools/generate_siblings.py writes. The table says which bytes a revision holds
(SHA-256 and size), so a name admits nothing: bytes do. A basis other than "identical" or "identical_source" is a claim
about other bytes than the family's, published by the audit and not shown again here. Not here: pins, finding the bytes.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from toktier.canonical import TAG_SIBLINGS, document_digest
from toktier.shipped_tables import demand_digest, demand_schema, held_to_form, read_table

SCHEMA = "toktier.siblings"
SCHEMA_VERSION = 1
CALLED = "table of audited repositories"


class Basis(enum.StrEnum):
    """Why a sibling is the canonical family's tokenizer, as the audit published it."""

    IDENTICAL = "identical"
    IDENTICAL_SOURCE = "identical_source"
    EQUIVALENT_SERIALISATION = "equivalent_serialisation"
    EQUIVALENT_CANONICALISATION = "equivalent_canonicalisation"
    EQUIVALENT_LOADER_FACE = "equivalent_loader_face"


BASIS_MEANINGS: dict[Basis, str] = {
    Basis.IDENTICAL: "the file is the family's, byte for byte",
    Basis.IDENTICAL_SOURCE: "the file is the one that the family's tokenizer.json is derived from, byte for byte",
    Basis.EQUIVALENT_SERIALISATION: "the audit found the same tokenizer, written down differently",
    Basis.EQUIVALENT_CANONICALISATION: "the audit found the same tokenizer after bringing both to one form",
    Basis.EQUIVALENT_LOADER_FACE: "the audit found the same tokenizer once a loader has added what side files declare",
}
# The canonical artifact is this repository's tokenizer by its bytes alone.
SAME_BYTES = frozenset({Basis.IDENTICAL, Basis.IDENTICAL_SOURCE})


@dataclass(frozen=True, slots=True)
class Sibling:
    """One audited repository. `packaged`: the canonical family is pinned here."""

    repo_id: str
    revision: str
    source_file: str
    source_sha256: str
    source_size: int
    canonical_family: str
    basis: Basis
    packaged: bool


@dataclass(frozen=True, slots=True)
class Siblings:
    """All audited repositories by name. `audit`: who published the table, and when."""

    by_repository: Mapping[str, Sibling]
    audit: Mapping[str, str]
    root_digest: str


def parse_siblings(data: bytes, where: str = "siblings.json") -> Siblings:
    """Siblings from the bytes of a table. RegistryInvalid when it does not hold: schema, root digest, shapes."""
    with held_to_form(CALLED, where):
        document = json.loads(data)
        demand_schema(document, SCHEMA, SCHEMA_VERSION)
        claimed, observed = document["root_digest"], root_digest(document)
        demand_digest(claimed, observed)
        siblings = [_sibling(entry) for entry in document["siblings"]]
        by_repository = {sibling.repo_id: sibling for sibling in siblings}
        if len(by_repository) != len(siblings):
            raise ValueError("a repository is listed twice")
        return Siblings(by_repository, dict(document["audit"]), claimed)


def root_digest(document: Mapping[str, Any]) -> str:
    """Digest over everything in the table but `root_digest` itself."""
    return "sha256:" + document_digest(TAG_SIBLINGS, {k: v for k, v in document.items() if k != "root_digest"})


def _sibling(entry: Mapping[str, Any]) -> Sibling:
    for name, form in (("revision", r"[0-9a-f]{40}"), ("source_sha256", r"[0-9a-f]{64}")):
        if re.fullmatch(form, entry[name]) is None:
            raise ValueError(f"{entry['repo_id']} has the {name} {entry[name]!r}")
    return Sibling(
        repo_id=str(entry["repo_id"]),
        revision=entry["revision"],
        source_file=str(entry["source_file"]),
        source_sha256=entry["source_sha256"],
        source_size=int(entry["source_size"]),
        canonical_family=str(entry["canonical_family"]),
        basis=Basis(entry["basis"]),
        packaged=bool(entry["canonical_packaged"]),
    )


@cache
def shipped_siblings() -> Siblings:
    """The sibling table of this installation. Read once a process: it never changes while it runs."""
    return parse_siblings(*read_table("siblings.json", CALLED))
