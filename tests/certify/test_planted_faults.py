"""Every fault of native/faults/faults.def is found by certification at its quick level, and only because it is there.

Runs in a build with -DTOKTIER_FAULTS=ON (`dev.py test --tier ci` makes one); the ordinary build has no faults to plant.
Which suite finds what is recorded in docs/certification-faults.md: in CI that suite alone is run, in the full tier all
are until one finds it, which must be the recorded one, and the published tokenizer of every day, qwen3, is tried too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.planted import DOCUMENT, KINDS, Bench, finder, listed, ordered, places, recorded
from toktier import _native
from toktier.certify.suites import SUITES
from toktier.program.engine_identity import identity_document

ROOT = Path(__file__).resolve().parents[2]

planting = pytest.mark.skipif(
    not hasattr(_native, "set_fault"), reason="this build has no faults to plant (dev.py test --tier ci makes one)"
)


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bench]:
    """By kind, made on first use."""
    made: dict[str, Bench] = {}

    def bench(kind: str) -> Bench:
        if kind not in made:
            directory = tmp_path_factory.mktemp(kind)
            path = KINDS[kind].make(directory)
            if path is None:
                pytest.skip("needs ../shared, which is not here")
            made[kind] = Bench(path, directory)
        return made[kind]

    return bench


def pairs(kinds_left_out: tuple[str, ...] = ()) -> list[object]:
    unshown = {
        "level_vector": pytest.mark.skipif(
            _native.build_facts()["dispatch_levels"] == ["baseline"], reason="this CPU has no level that shuffles"
        ),
        "session_shares": pytest.mark.skipif(
            len(os.sched_getaffinity(0)) < 2, reason="a session shares an append among the processors that there are"
        ),
    }
    return [
        pytest.param(name, kind, marks=[unshown[name]] if name in unshown else [])
        for name, kinds, _ in listed()
        for kind in kinds.split()
        if kind not in kinds_left_out
    ]


@planting
@pytest.mark.ci
@pytest.mark.parametrize(("name", "kind"), pairs(("qwen3",)))
def test_a_planted_fault_is_found(name: str, kind: str, benches: Callable[[str], Bench]) -> None:
    bench, suite = benches(kind), finder(name, kind)
    found = next(bench.look(name, [suite]), None)
    assert found is not None, f"{suite.name} is recorded to find {name} on {kind} and does not: see {DOCUMENT.name}"
    assert bench.agrees_without(found), f"{suite.name} reports a difference without the fault too"


@planting
@pytest.mark.full
@pytest.mark.parametrize(("name", "kind"), pairs())
def test_the_recorded_suite_is_the_first_that_finds_it(name: str, kind: str, benches: Callable[[str], Bench]) -> None:
    bench = benches(kind)
    found = next(bench.look(name, ordered()), None)
    assert found is not None, f"no suite finds {name} on {kind} at the quick level"
    assert found.suite is finder(name, kind)
    assert bench.agrees_without(found), f"{found.suite.name} reports a difference without the fault too"


@planting
@pytest.mark.full  # in CI the block that finds a fault is shown to pass without it
def test_nothing_is_found_where_nothing_is_planted(benches: Callable[[str], Bench]) -> None:
    assert not list(benches("mini").look("", ordered()))


@planting
@pytest.mark.ci
def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="no fault of this name"):
        _native.set_fault("no such")


def test_the_table_is_sound() -> None:
    names = [name for name, _, _ in listed()]
    assert len(names) == len(set(names)) >= 60
    assert len(names) == (ROOT / "native" / "faults" / "faults.def").read_text().count("TOKTIER_FAULT_ROW(")
    for name, kinds, meaning in listed():
        assert set(kinds.split()) <= KINDS.keys(), name
        assert meaning
        assert places(name), f"{name} is planted nowhere"


def test_the_list_of_faults_is_no_part_of_the_engine() -> None:
    """To edit it outdates no evidence, and no ordinary build reads what the identity does not cover."""
    assert not [name for name in identity_document(ROOT) if "native/faults" in name or name.endswith(".def")]
    outside = re.compile(r'#include "(?:[./]*)?faults/')
    for text in (path.read_text("utf-8") for path in sorted((ROOT / "native" / "engine").rglob("*.[ch]*"))):
        planting = re.findall(r"#ifdef TOKTIER_FAULTS\n(.*?)#else", text, re.DOTALL)
        assert len(outside.findall(text)) == sum(len(outside.findall(part)) for part in planting)


def test_the_document_names_every_fault_and_who_finds_it() -> None:
    suites = {suite.name for suite in SUITES}
    written = recorded()
    assert written.keys() == {name for name, _, _ in listed()}
    for name, kinds, meaning in listed():
        said, finders = written[name]
        assert said == meaning
        assert finders.keys() == set(kinds.split())
        for finder_names in finders.values():
            assert set(finder_names.split(", ")) <= suites, name
