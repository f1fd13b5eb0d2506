"""The sibling table: what it says, and that an edited one is refused."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from toktier import resources
from toktier.artifacts.pins import shipped_pins
from toktier.artifacts.siblings import (
    BASIS_MEANINGS,
    SAME_BYTES,
    Basis,
    parse_siblings,
    root_digest,
    shipped_siblings,
)
from toktier.errors import ExitCode, RegistryInvalid

TABLE = resources.tables_dir() / "siblings.json"


def document() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(TABLE.read_bytes())
    return loaded


def signed(changed: dict[str, Any]) -> bytes:
    changed["root_digest"] = root_digest(changed)
    return json.dumps(changed).encode()


def test_the_shipped_table_holds_what_was_published() -> None:
    table = shipped_siblings()
    assert len(table.by_repository) == 215
    counted = Counter(sibling.basis for sibling in table.by_repository.values())
    assert counted[Basis.IDENTICAL] == 152
    assert counted[Basis.IDENTICAL_SOURCE] == 13
    assert sum(sibling.packaged for sibling in table.by_repository.values()) == 208
    assert set(counted) == set(Basis) == set(BASIS_MEANINGS)
    assert table.audit == {"source": "TokTier 0.3.0 sibling table", "date": "2026-08-04"}


def test_equal_bytes_are_those_of_the_pin() -> None:
    pins = shipped_pins()
    for sibling in shipped_siblings().by_repository.values():
        if sibling.packaged and sibling.basis is Basis.IDENTICAL:
            assert pins.family(sibling.canonical_family).tokenizer.sha256 == sibling.source_sha256
    assert {Basis.IDENTICAL, Basis.IDENTICAL_SOURCE} == SAME_BYTES


@pytest.mark.parametrize("member", ["revision", "source_sha256", "canonical_family", "basis", "repo_id"])
def test_an_edited_table_is_refused(member: str) -> None:
    changed = document()
    entry = changed["siblings"][3]
    entry[member] = "identical_source" if member == "basis" else "0" + entry[member][1:]
    with pytest.raises(RegistryInvalid, match="root_digest") as caught:
        parse_siblings(json.dumps(changed).encode())
    assert caught.value.exit_code == ExitCode.INTEGRITY
    assert caught.value.remedy is not None


def test_the_digest_is_over_values_not_over_spelling() -> None:
    assert parse_siblings(json.dumps(document(), indent=7, sort_keys=False).encode()) == shipped_siblings()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["siblings"].append(d["siblings"][0]), "listed twice"),
        (lambda d: d["siblings"][0].update(revision="main"), "revision"),
        (lambda d: d["siblings"][0].update(basis="similar"), "similar"),
        (lambda d: d["siblings"][0].pop("repo_id"), "repo_id"),
        (lambda d: d.update(schema_version=2), "version 1"),
    ],
)
def test_a_digest_makes_no_sense_right(change: Any, said: str) -> None:
    changed = document()
    change(changed)
    with pytest.raises(RegistryInvalid, match=said):
        parse_siblings(signed(changed))


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"[" * 100_000, b"\xff"])
def test_what_is_no_table_is_refused(data: bytes) -> None:
    with pytest.raises(RegistryInvalid):
        parse_siblings(data)
