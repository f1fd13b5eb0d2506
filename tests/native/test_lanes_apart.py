"""Nothing that is compiled for a newer CPU can be linked into what an older one runs.

The objects of the inner loops, one set a dispatch level, are looked at as the build left them: a function that two
levels emit under one name would be linked once, from either (native/engine/lanes/lanes.h). What the loops give:
test_split_forms, test_word_encoder and test_text_levels.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.material import ROOT

SETS = sorted(ROOT.glob("build/cp*/native/CMakeFiles/toktier_lanes_*.dir"))

pytestmark = pytest.mark.skipif(
    not SETS or shutil.which("nm") is None, reason="needs nm, and the objects of an editable build"
)


def defined(objects: Path) -> list[tuple[str, str, str]]:
    """(object, kind, symbol) of everything that other objects may meet: external, weak or unique."""
    found = []
    for path in sorted(objects.rglob("*.o")):
        listing = subprocess.run(["nm", "--defined-only", path], capture_output=True, text=True, check=True).stdout
        for line in listing.splitlines():
            _, kind, symbol = line.split(maxsplit=2)
            if kind.isupper() or kind in "uvw":
                found.append((path.name, kind, symbol))
    return found


@pytest.mark.parametrize("objects", SETS, ids=lambda path: path.stem)
def test_a_level_gives_tables_of_its_own_name_and_nothing_else(objects: Path) -> None:
    level = objects.stem.removeprefix("toktier_lanes_")
    symbols = defined(objects)
    assert symbols
    own = f"_lanes_{level}"
    assert [s for s in symbols if s[1] in "WVuvw" or own not in s[2]] == []


def test_every_level_has_the_same_objects() -> None:
    names = {tuple(sorted(path.name for path in objects.rglob("*.o"))) for objects in SETS}
    assert len(names) == 1
