"""Evidence of the engine in this checkout is shipped for the tokenizers that a host without a hub can have.

While the registry has no row nothing is demanded: admission then rests on another ground, and says so.
"""

from __future__ import annotations

import sys

import pytest

from tests.support.material import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import generate_registry as generator

from toktier.evidence.registry import parse_registry

REMEDY = "run tools/dev.py recertify"


@pytest.fixture(scope="module")
def shipped() -> bytes:
    data = generator.TABLE.read_bytes()
    if not parse_registry(data).rows:
        pytest.skip("the registry has no row yet")
    return data


def test_the_tokenizers_that_need_no_hub_are_certified_beside_every_reference_version(shipped: bytes) -> None:
    names = generator.needed()
    problems = [line for line in generator.release_problems(shipped) if line.split()[0].strip(":") in names]
    assert problems == [], REMEDY


def test_the_registry_is_what_the_evidence_says(shipped: bytes) -> None:
    (data,) = generator.generate().values()
    assert data == shipped, REMEDY


def test_a_row_is_served_by_the_engine_under_the_default_policy(shipped: bytes) -> None:
    import toktier
    from toktier.program.engine_identity import is_bound

    assert is_bound(), "the native module was built from other sources: tools/dev.py builds it again"
    report = toktier.load("toktier_mini").explain()
    assert (report["backend"], report["status"]) == ("fast_cpu", "certified"), REMEDY
    assert report["certification"]["backends"]["fast_cpu"]["source"] == "registry"
