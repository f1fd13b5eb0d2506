"""The identity of the engine: the same everywhere for the same sources, another for any change of what it covers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.material import ROOT
from toktier.program import engine_identity as identity

COVERED = ["native/engine", "native/session", "native/compile", "kernels/shared", "toktier/program", "tables/unicode"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what is covered, and of what is not."""
    for part in [*COVERED, "native/bind", "toktier/routing"]:
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "toktier" / "version.py").write_text("VERSION = '1'\n")
    (tmp_path / "tables" / "siblings.json").write_text("{}")
    return tmp_path


def digest(root: Path) -> str:
    return identity.digest_of(identity.identity_document(root))


def test_a_copy_has_the_identity_of_the_original(checkout: Path) -> None:
    assert digest(checkout) == digest(ROOT)


@pytest.mark.parametrize("part", COVERED)
def test_any_change_counts(checkout: Path, part: str) -> None:
    before = digest(checkout)
    files = [p for p in sorted((checkout / part).rglob("*")) if p.suffix in (".py", ".json", ".h", ".cpp")]
    assert files
    for path in files:
        data = path.read_bytes()
        path.write_bytes(data + b"\n")
        assert digest(checkout) != before, path
        path.write_bytes(data)
    assert digest(checkout) == before
    (checkout / part / f"another{files[0].suffix}").write_text("")
    assert digest(checkout) != before


@pytest.mark.parametrize(
    "name", ["native/bind/ids.cpp", "toktier/routing/plan.py", "toktier/version.py", "tables/siblings.json"]
)
def test_what_is_not_covered_does_not_count(checkout: Path, name: str) -> None:
    before = digest(checkout)
    assert (checkout / name).exists()
    (checkout / name).write_text("changed")
    (checkout / "toktier" / "program" / "__pycache__").mkdir()
    (checkout / "toktier" / "program" / "__pycache__" / "x.pyc").write_bytes(b"x")
    (checkout / "native" / "engine" / "notes.md").write_text("x")
    assert digest(checkout) == before


def test_a_moved_file_and_a_swap_of_two_count(checkout: Path) -> None:
    before = digest(checkout)
    a, b = checkout / "native/engine/decoder.cpp", checkout / "native/engine/encoder.cpp"
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)
    assert digest(checkout) != before


def test_the_installation_computes_what_a_checkout_with_its_native_part_would() -> None:
    document = identity.identity_document(ROOT)
    python = {name: value for name, value in document.items() if not name.startswith(identity.NATIVE_PARTS)}
    assert dict(identity.python_digests()) == python
    facts = identity.build_facts()
    assert identity.engine_identity() == identity.combined(facts["native_digest"], python)
    assert identity.digest_of(document) == identity.combined(identity.native_digest(document), python)


def test_the_module_says_what_it_was_built_from_and_how() -> None:
    facts = identity.build_facts()
    assert len(facts["identity"]) == len(facts["native_digest"]) == 64
    assert any(char.isdigit() for char in facts["compiler"])
    assert facts["build_type"]
    assert "-O" in facts["flags"]
    assert facts["dispatch_levels"][0] == "baseline"


def test_other_python_beside_the_module_is_another_identity_and_not_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, files = identity.build_facts(), dict(identity.python_digests())
    own = {**facts, "identity": identity.combined(facts["native_digest"], files)}
    monkeypatch.setattr(identity, "build_facts", lambda: own)
    monkeypatch.setattr(identity, "engine_identity", identity.engine_identity.__wrapped__)
    assert identity.is_bound()
    files["toktier/program/compile.py"] = "0" * 64
    monkeypatch.setattr(identity, "python_digests", lambda: files)
    assert not identity.is_bound()


def test_the_script_needs_no_installed_package_and_names_what_differs(checkout: Path) -> None:
    package = ("__init__.py", "canonical.py", "resources.py", "gpu/__init__.py", "gpu/host_identity.py")
    for path in ("tools/compute_identity.py", *(f"toktier/{name}" for name in package)):
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, checkout / path)
    (checkout / "evidence").mkdir()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        script = str(checkout / "tools" / "compute_identity.py")
        return subprocess.run([sys.executable, "-S", "-I", script, *arguments], capture_output=True, text=True)

    assert run().stdout.strip() == digest(checkout), run().stderr
    assert run("--check").returncode == 1
    assert run("--record").returncode == 0
    assert run("--check").returncode == 0
    changed = checkout / "native" / "engine" / "decoder.cpp"
    changed.write_text("changed")
    (checkout / "kernels" / "shared" / "new.h").write_text("")
    diff = run("--show-diff", "--check")
    assert diff.returncode == 1
    assert diff.stdout.splitlines()[:2] == ["added    kernels/shared/new.h", "changed  native/engine/decoder.cpp"]
    header = checkout / "build_identity.h"
    run("--header", str(header))
    assert digest(checkout) in header.read_text()
