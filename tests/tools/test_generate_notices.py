"""Notices and SBOM: what they say, that they are made from what is installed, and what --check declines."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.material import ROOT
from toktier.artifacts.pins import shipped_pins
from toktier.version import VERSION

GENERATOR = ROOT / "tools" / "generate_notices.py"
NOTICES, SBOM = ROOT / "THIRD-PARTY-NOTICES.txt", ROOT / "legal" / "toktier.cdx.json"


def check(*arguments: str, python: tuple[str, ...] = (sys.executable,), root: Path = ROOT) -> tuple[int, str]:
    command = [*python, str(root / "tools" / "generate_notices.py"), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert "Traceback" not in run.stderr
    return run.returncode, run.stderr


def sbom() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(SBOM.read_bytes())
    return loaded


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The parts of the checkout that the generator reads, to be changed."""
    for name in ("THIRD-PARTY-NOTICES.txt", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    for name in ("legal", "tools", "tables", "toktier"):
        if name in ("tables", "toktier"):
            (tmp_path / name).symlink_to(ROOT / name)
            continue
        (tmp_path / name).mkdir()
        for file in (ROOT / name).glob("*.*"):
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_they_are_what_is_generated_here_or_it_is_said_why_not() -> None:
    code, said = check("--check")
    assert code in (0, 3), said
    assert (code == 3) == ("declined:" in said)


def test_generating_twice_gives_the_same_bytes(copy: Path) -> None:
    code, said = check(root=copy)
    if code == 2:
        pytest.skip(said)
    first = [(copy / "legal" / SBOM.name).read_bytes(), (copy / NOTICES.name).read_bytes()]
    assert check(root=copy)[0] == check("--check", root=copy)[0] == 0
    assert first == [(copy / "legal" / SBOM.name).read_bytes(), (copy / NOTICES.name).read_bytes()]


def test_the_sbom_has_a_version_no_time_and_no_name_of_another_project() -> None:
    document = sbom()
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["component"]["version"] == VERSION
    assert "serialNumber" not in document
    assert "timestamp" not in document["metadata"]
    assert "pkg:pypi/toktier" not in SBOM.read_text("utf-8")
    references = [component["bom-ref"] for component in document["components"]]
    assert len(set(references)) == len(references)
    assert {entry["ref"] for entry in document["dependencies"]} == {"toktier", *references}


def test_every_part_has_a_licence_and_is_in_the_notices() -> None:
    text = NOTICES.read_text("utf-8")
    names = {component["name"] for component in sbom()["components"]}
    assert {"nanobind", "robin-map", "Unicode Character Database", "tokenizers", "typer"} <= names
    assert {family.name for family in shipped_pins().families.values() if family.shipped} <= names
    for component in sbom()["components"]:
        (licence,) = component["licenses"]
        assert licence.get("expression") or licence["license"]["id"]
        assert component["name"] in text
    for words in ("UNICODE LICENSE V3", "Wenzel Jakob", "Goetghebuer-Planchon"):
        assert words in text


def test_a_shipped_tokenizer_is_named_by_its_digest() -> None:
    (mini,) = [component for component in sbom()["components"] if component["name"] == "toktier_mini"]
    pinned = shipped_pins().family("toktier_mini").tokenizer.sha256
    assert mini["hashes"] == [{"alg": "SHA-256", "content": pinned}]


def test_a_changed_output_or_requirement_is_seen(copy: Path) -> None:
    if check("--check", root=copy)[0] == 3:
        pytest.skip("nothing can be compared here")
    (copy / NOTICES.name).write_text(NOTICES.read_text("utf-8").replace("Wenzel", "Wenzl"), "utf-8")
    assert check("--check", root=copy) == (
        1,
        f"error: {NOTICES.name} differs from what is generated; run tools/generate_notices.py\n",
    )
    assert check(root=copy)[0] == 0
    project = copy / "pyproject.toml"
    project.write_text(project.read_text("utf-8").replace('"rich",', '"rich>=1",'), "utf-8")
    assert check("--check", root=copy)[0] == 1


def test_without_the_distributions_it_declines_and_checks_what_it_can(copy: Path) -> None:
    bare = (sys.executable, "-S", "-I")  # no site-packages: nothing is installed
    code, said = check("--check", python=bare, root=copy)
    assert (code, said) == (3, "declined: nanobind is not installed here, its licence cannot be read\n")
    changed = json.loads(SBOM.read_bytes())
    changed["metadata"]["component"]["version"] = "0.0.9"
    (copy / "legal" / SBOM.name).write_text(json.dumps(changed))
    code, said = check("--check", python=bare, root=copy)
    assert (code, "of another version" in said) == (1, True)
    project = copy / "pyproject.toml"
    project.write_text(re.sub(r'"rich"', '"rich>=1"', project.read_text("utf-8")), "utf-8")
    assert "other requirements" in check("--check", python=bare, root=copy)[1]


def test_another_version_of_what_is_compiled_in_is_declined(copy: Path) -> None:
    changed = json.loads(SBOM.read_bytes())
    for component in changed["components"]:
        if component["name"] == "nanobind":
            component["version"] = "2.9.0"
    (copy / "legal" / SBOM.name).write_text(json.dumps(changed))
    code, said = check("--check", root=copy)
    assert (code, "the notices are of nanobind 2.9.0" in said) == (3, True)
