"""The support registry: what the shipped evidence says of each tokenizer on each backend, indexed for a load.

Read from tables/support_registry.json, which tools/generate_registry.py writes from evidence/. Its root digest is over
the bytes of the file, with zeros in its own place: that costs a load a tenth of what a digest over the canonical form
would. Rows are dicts as written; one is interpreted when it is asked for (`registry_entry`). An edited table speaks for
nobody, nor does one of which a row does not say whom it is about. Not here: evidence made on this host (`local`), what
follows for a load (`admission`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from toktier.canonical import TAG_SUPPORT_REGISTRY, tagged_digest
from toktier.routing.vocabulary import BackendId
from toktier.shipped_tables import demand_digest, demand_schema, held_to_form, read_table

SCHEMA = "toktier.support_registry"
SCHEMA_VERSION = 1
FILE_NAME = "support_registry.json"
CALLED = "support registry"
_ROOT = re.compile(rb'"root_digest": "sha256:([0-9a-f]{64})"')


class Registry:
    """Rows by artifact digest and by fingerprint. Raises ValueError, KeyError or TypeError for rows that cannot be told
    apart, or that do not say whom they are about. `engine`: the identity that they were generated for, None while there
    is no row."""

    def __init__(self, document: Mapping[str, Any], root_digest: str) -> None:
        self.root_digest = root_digest
        self.engine: str | None = document["engine_identity"]
        self.rows: Sequence[Mapping[str, Any]] = document["rows"]
        self._by_digest: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._by_fingerprint: dict[tuple[str, str], Mapping[str, Any]] = {}
        for row in self.rows:
            exact = row["artifact"]["sha256"], BackendId(row["backend"]).value
            if exact in self._by_digest:
                raise ValueError(f"two rows are about {exact[0][:12]} on {exact[1]}")
            self._by_digest[exact] = row
            self._by_fingerprint.setdefault((row["artifact"]["fingerprint"], exact[1]), row)

    def row(self, backend: BackendId, sha256: str, fingerprint: str | None) -> Mapping[str, Any] | None:
        """The row of these bytes, else of an artifact with this fingerprint."""
        exact = self._by_digest.get((sha256, backend.value))
        if exact is not None or fingerprint is None:
            return exact
        return self._by_fingerprint.get((fingerprint, backend.value))


def sealed(document: Mapping[str, Any]) -> bytes:
    """The bytes of a table with its root digest: readable, keys in one order."""
    blank = {**document, "root_digest": f"sha256:{'0' * 64}"}
    data = (json.dumps(blank, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")
    return _ROOT.sub(_root(tagged_digest(TAG_SUPPORT_REGISTRY, data)), data)


def _root(digest: str) -> bytes:
    return f'"root_digest": "sha256:{digest}"'.encode("ascii")


def parse_registry(data: bytes, where: str = FILE_NAME) -> Registry:
    """The registry in the bytes of a table. Raises RegistryInvalid when it does not hold."""
    with held_to_form(CALLED, where):
        found = _ROOT.findall(data)
        if len(found) != 1:
            raise ValueError("it has not exactly one root_digest")
        claimed = found[0].decode("ascii")
        observed = tagged_digest(TAG_SUPPORT_REGISTRY, _ROOT.sub(_root("0" * 64), data))
        demand_digest(claimed, observed)
        document = json.loads(data)
        demand_schema(document, SCHEMA, SCHEMA_VERSION)
        return Registry(document, f"sha256:{claimed}")


@cache
def shipped_registry() -> Registry:
    """The registry of this installation, read once in a process. Raises RegistryInvalid."""
    return parse_registry(*read_table(FILE_NAME, CALLED))
