"""Round trip with the public TokTier 0.3.0, installed in an environment of its own: its bundles here, ours there.

The public command runs offline, with a home of its own; it needs the package index once, for its installation.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import run
from tests.support.material import unpack
from toktier.artifacts.pins import shipped_pins

VERSION = "0.3.0"
FAMILIES = {"qwen3_8b": "qwen3", "deepseek_v3": "deepseek_v3"}  # those of which every pinned file is at hand

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The public command."""
    place = tmp_path_factory.mktemp("public")
    venv.create(place)
    # By the pip that is here, and without compiling what is never imported: a third of the work.
    pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python"]
    install = [*pip, "-q", "install", "--no-compile", f"toktier=={VERSION}"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"TokTier {VERSION} cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    return place / "bin" / "toktier"


def theirs(public: Path, home: Path, *arguments: str) -> Any:
    """The document of a run of the public command, which must succeed."""
    environment = {"PATH": os.environ["PATH"], "TOKTIER_HOME": str(home), "TOKTIER_OFFLINE": "1"}
    done = subprocess.run([public, *arguments, "--json"], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ours(home: Path, *arguments: str) -> Any:
    outcome = run(*arguments, "--json", home=home)
    assert outcome.code == 0, outcome
    return outcome.document


@pytest.fixture(scope="module")
def files(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A directory of every pinned file for each family."""
    found = {}
    for family, name in FAMILIES.items():
        place = found[family] = tmp_path_factory.mktemp(family)
        for side in (shared / "artifacts" / "sidecars" / family).iterdir():
            shutil.copyfile(side, place / side.name)
        (place / "tokenizer.json").write_bytes(unpack(shared / "artifacts" / f"{name}.json.zst"))
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_both_write_the_same_bytes_and_read_each_other_s(
    family: str, public: Path, files: dict[str, Path], tmp_path: Path
) -> None:
    alias = shipped_pins().family(family).alias
    entry = tmp_path / "theirs" / "cache" / "artifacts" / alias
    shutil.copytree(files[family], entry)
    for directory in (entry, *entry.parents[:3]):
        directory.chmod(0o700)
    theirs(public, tmp_path / "theirs", "artifacts", "verify", family)
    theirs(public, tmp_path / "theirs", "artifacts", "export", family, "--out", str(tmp_path / "theirs.tar"))

    ours(tmp_path / "home", "artifacts", "import", str(files[family]))
    exported = ours(tmp_path / "home", "artifacts", "export", family, "--out", str(tmp_path / "ours.tar"))
    assert exported["complete"]
    assert (tmp_path / "ours.tar").read_bytes() == (tmp_path / "theirs.tar").read_bytes()

    imported = ours(tmp_path / "fresh", "artifacts", "import", str(tmp_path / "theirs.tar"))
    assert {f["outcome"] for f in imported["paths"][0]["files"]} == {"stored"}
    verified = ours(tmp_path / "fresh", "artifacts", "verify", family)
    assert (verified["families"][0]["complete"], verified["families"][0]["valid"]) == (True, True)

    there = theirs(public, tmp_path / "elsewhere", "artifacts", "import", str(tmp_path / "ours.tar"))
    assert (there["action"], there["entry"]) == ("imported", alias)
    assert theirs(public, tmp_path / "elsewhere", "artifacts", "verify", family)["action"] == "verified"


def test_a_loadable_bundle_and_a_part_of_several_are_taken_there(
    public: Path, files: dict[str, Path], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    for family in FAMILIES:
        ours(home, "artifacts", "import", str(files[family] / "tokenizer.json"))
    ours(home, "artifacts", "export", *FAMILIES, "--out", str(tmp_path / "both.tar"))
    shutil.unpack_archive(tmp_path / "both.tar", tmp_path / "parts", filter="data")
    for family in FAMILIES:
        alias = shipped_pins().family(family).alias
        there = theirs(public, tmp_path / "there", "artifacts", "import", str(tmp_path / "parts" / f"{alias}.tar"))
        assert there["entry"] == alias
