"""The compiler's digest covers what a program depends on: its sources, the Unicode tables, the native module."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from toktier.program import compiler_identity, engine_identity
from toktier.program.compiler_identity import compiler_digest
from toktier.resources import tables_dir


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all that counts, which the digest then reads."""
    package = Path(compiler_identity.__file__).parent
    shutil.copytree(package, tmp_path / "program", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(tables_dir() / "unicode", tmp_path / "tables" / "unicode")
    native = importlib.util.find_spec("toktier._native")
    assert native is not None
    shutil.copyfile(str(native.origin), tmp_path / "native.so")
    monkeypatch.setattr(engine_identity, "__file__", str(tmp_path / "program" / "engine_identity.py"))
    monkeypatch.setattr(engine_identity, "tables_dir", lambda: tmp_path / "tables")
    monkeypatch.setattr(compiler_identity, "python_digests", engine_identity.python_digests.__wrapped__)
    found = SimpleNamespace(origin=str(tmp_path / "native.so"))
    monkeypatch.setattr(compiler_identity.importlib.util, "find_spec", lambda name: found)
    return tmp_path


def digest() -> str:
    return compiler_digest.__wrapped__()


def test_a_copy_has_the_digest_of_the_original(copy: Path) -> None:
    assert digest() == compiler_digest()


@pytest.mark.parametrize("name", ["program/compile.py", "program/layout.py", "tables/unicode/*.json", "native.so"])
def test_any_change_counts(copy: Path, name: str) -> None:
    before = digest()
    for path in copy.glob(name):
        data = path.read_bytes()
        path.write_bytes(data + b"\n")
        assert digest() != before, path
        path.write_bytes(data)
        assert digest() == before


def test_a_new_source_counts_and_a_cache_of_python_does_not(copy: Path) -> None:
    before = digest()
    (copy / "program" / "__pycache__").mkdir()
    (copy / "program" / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert digest() == before
    (copy / "program" / "another.py").write_text("")
    assert digest() != before
