"""The registry is found by digest or fingerprint, and an edited one speaks for nobody."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.evidence_documents import evidence_document
from toktier.errors import RegistryInvalid
from toktier.evidence import registry, registry_entry
from toktier.routing.vocabulary import BackendId


def table(*rows: dict[str, Any]) -> bytes:
    document = {"schema": registry.SCHEMA, "schema_version": 1, "engine_identity": "0" * 64, "rows": list(rows)}
    return registry.sealed(document)


def row(sha256: str, fingerprint: str, backend: str = "fast_cpu") -> dict[str, Any]:
    return {"artifact": {"sha256": sha256, "fingerprint": fingerprint}, "backend": backend, "references": {}}


def test_rows_are_found_by_digest_first_and_by_fingerprint_else() -> None:
    a, b = row("a" * 64, "f" * 64), row("b" * 64, "f" * 64)
    found = registry.parse_registry(table(a, b))
    assert found.row(BackendId.FAST_CPU, "b" * 64, "e" * 64) == b
    assert found.row(BackendId.FAST_CPU, "c" * 64, "f" * 64) == a
    assert found.row(BackendId.FAST_CPU, "c" * 64, None) is None
    assert found.row(BackendId.FAST_CPU, "c" * 64, "e" * 64) is None
    assert found.row(BackendId.GPU, "a" * 64, "f" * 64) is None


def test_any_changed_byte_is_seen() -> None:
    data = table(row("a" * 64, "f" * 64))
    registry.parse_registry(data)
    for at in range(0, len(data), 7):
        changed = bytes([*data[:at], data[at] ^ 1, *data[at + 1 :]])
        with pytest.raises(RegistryInvalid):
            registry.parse_registry(changed)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d + b" ",
        lambda d: d.replace(b'"rows": [', b'"rows" : ['),
        lambda d: b"",
        lambda d: b"{}",
        lambda d: d + d,
        lambda d: d[:-20],
    ],
)
def test_other_bytes_are_refused(change: Any) -> None:
    with pytest.raises(RegistryInvalid, match="damaged"):
        registry.parse_registry(change(table(row("a" * 64, "f" * 64))))


def test_another_schema_is_refused() -> None:
    with pytest.raises(RegistryInvalid):
        registry.parse_registry(
            registry.sealed({"schema": "x", "schema_version": 1, "engine_identity": "", "rows": []})
        )


def test_rows_that_do_not_say_whom_they_are_about_spoil_the_table() -> None:
    sound = row("a" * 64, "f" * 64)
    spoilt: list[Any] = [None, 5, {}, {**sound, "artifact": None}, {**sound, "backend": "abacus"}, sound]
    for other in spoilt:  # the last one: twice the same
        with pytest.raises(RegistryInvalid, match="damaged"):
            registry.parse_registry(table(sound, other))


def test_the_shipped_one_holds_and_is_read_once() -> None:
    assert registry.shipped_registry() is registry.shipped_registry()


def test_every_entry_that_is_shipped_holds_with_its_evidence() -> None:
    for one in registry.shipped_registry().rows:
        for version in one["references"]:
            assert registry_entry.form_problem(one, version) is None
            assert registry_entry.evidence_problem(one, version) is None


def test_evidence_is_no_registry() -> None:
    import json

    with pytest.raises(RegistryInvalid):
        registry.parse_registry(json.dumps(evidence_document()).encode())
