"""The table of digests: what it says of a cubin, and that an edited one says nothing."""

from __future__ import annotations

import json

import pytest

from tests.support.kernels import digest_table
from toktier import shipped_tables
from toktier.errors import RegistryInvalid
from toktier.gpu.digests import FILE, Finding, parse_digests, root_digest, shipped_digests

ONE, TWO = "1" * 64, "2" * 64


def test_findings() -> None:
    table = parse_digests(digest_table({"sm_90": ONE}, version="13.5.37", sources=TWO))
    assert table.pinned == "nvidia-cuda-nvrtc==13.5.37"
    assert table.is_listed(ONE, "sm_90")
    assert not table.is_listed(ONE, "sm_80")
    assert table.finding(ONE, "sm_90", sources=ONE, version="1.0.0") is Finding.LISTED
    assert table.finding(TWO, "sm_90", sources=ONE, version="13.5.37") is Finding.OTHER_SOURCES
    assert table.finding(TWO, "sm_90", sources=TWO, version="13.1.80") is Finding.OTHER_TOOLCHAIN
    assert table.finding(TWO, "sm_80", sources=TWO, version="13.5.37") is Finding.OTHER_TOOLCHAIN
    assert table.finding(TWO, "sm_90", sources=TWO, version="13.5.37") is Finding.DIFFERS


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("schema", "toktier.other"), ("schema_version", 2), ("builds", []), ("builds", None), ("sources", "00"),
        ("builds", [{"distribution": "d", "version": "1", "cubins": {"sm_90": "x"}}]), ("builds", [{}]),
    ],
)  # fmt: skip
def test_tables_of_another_form_are_refused(member: str, value: object) -> None:
    document = json.loads(digest_table({"sm_90": ONE}))
    document[member] = value
    document["root_digest"] = root_digest(document)
    with pytest.raises(RegistryInvalid):
        parse_digests(json.dumps(document).encode())


def test_an_edited_table_is_refused() -> None:
    data = digest_table({"sm_90": ONE}).replace(ONE.encode(), TWO.encode())
    with pytest.raises(RegistryInvalid, match="root_digest"):
        parse_digests(data)


def test_the_shipped_table_holds() -> None:
    data, _ = shipped_tables.read_table(FILE, "table")
    assert parse_digests(data) == shipped_digests()
