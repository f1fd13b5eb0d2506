"""Licences of the pinned families, as their repositories state them. Read from tables/family_licences.json.

The table is written by hand: a licence is a reading of a model card, with the place where it was read. What nobody has
read is "unknown" and said so; nothing is inferred from a sibling or an earlier model. Not here: licences of what this
package itself is made of (THIRD-PARTY-NOTICES).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from toktier.shipped_tables import demand_schema, held_to_form, read_table

SCHEMA = "toktier.family_licences"
SCHEMA_VERSION = 1
CALLED = "table of licences"
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Licence:
    """`identifier`: SPDX, a LicenseRef- name for licences that SPDX does not list, or "unknown". `read_in`: where the
    licence is stated; None for an unknown one."""

    identifier: str
    name: str | None
    read_in: str | None

    def to_dict(self) -> dict[str, Any]:
        return {"identifier": self.identifier, "name": self.name, "read_in": self.read_in}

    def __str__(self) -> str:
        if self.identifier == UNKNOWN:
            return "unknown: ask the repository before you pass the files on"
        return f"{self.name or self.identifier} (read in: {self.read_in})"


NOT_LISTED = Licence(UNKNOWN, None, None)


def parse_licences(data: bytes, where: str = "family_licences.json") -> Mapping[str, Licence]:
    """Licences by family from the bytes of a table. RegistryInvalid when it does not hold."""
    with held_to_form(CALLED, where):
        document = json.loads(data)
        demand_schema(document, SCHEMA, SCHEMA_VERSION)
        return {
            name: Licence(str(entry["identifier"]), entry.get("name"), entry.get("read_in"))
            for name, entry in document["families"].items()
        }


@cache
def shipped_licences() -> Mapping[str, Licence]:
    """The licences that this installation knows of, by family."""
    return parse_licences(*read_table("family_licences.json", CALLED))


def licence_of(family: str) -> Licence:
    """The licence of a pinned family; unknown for one that the table does not name."""
    return shipped_licences().get(family, NOT_LISTED)
