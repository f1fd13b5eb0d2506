"""The table of licences: every family has a line, and nothing is claimed without a place where it was read."""

from __future__ import annotations

import pytest

from toktier.artifacts.licences import UNKNOWN, licence_of, parse_licences, shipped_licences
from toktier.artifacts.pins import shipped_pins
from toktier.errors import RegistryInvalid


def test_every_family_has_a_licence_or_is_said_to_have_none_known() -> None:
    licences = shipped_licences()
    assert set(licences) == set(shipped_pins().families)
    for licence in licences.values():
        assert (licence.identifier == UNKNOWN) == (licence.read_in is None)
    assert licence_of("llama_3_1_8b").identifier.startswith("LicenseRef-")


def test_unknown_says_what_to_do() -> None:
    assert licence_of("not_a_family").identifier == UNKNOWN
    assert "ask the repository" in str(licence_of("not_a_family"))
    assert str(licence_of("qwen3_8b")).startswith("Apache-2.0 (read in: ")


@pytest.mark.parametrize("data", [b"", b"{}", b'{"schema": "toktier.family_licences", "schema_version": 1}'])
def test_a_damaged_table_is_refused(data: bytes) -> None:
    with pytest.raises(RegistryInvalid, match="damaged"):
        parse_licences(data)
