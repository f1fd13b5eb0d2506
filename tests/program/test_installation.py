"""The note of what is installed: what it says is what hashing says, whatever changed since it was written."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toktier.program import compiler_identity, engine_identity, installation
from toktier.program.compiler_identity import compiler_digest
from toktier.program.engine_identity import build_facts
from toktier.program.installation import Identities
from toktier.resources import tables_dir


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all that counts, which is then the installation; a minute old."""
    shutil.copytree(
        Path(installation.__file__).parent, tmp_path / "program", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(tables_dir() / "unicode", tmp_path / "tables" / "unicode")
    native = importlib.util.find_spec("toktier._native")
    assert native is not None
    shutil.copyfile(str(native.origin), tmp_path / "native.so")
    for path in tmp_path.rglob("*"):
        path.chmod(0o700)
    monkeypatch.setattr(engine_identity, "__file__", str(tmp_path / "program" / "engine_identity.py"))
    monkeypatch.setattr(engine_identity, "tables_dir", lambda: tmp_path / "tables")
    monkeypatch.setattr(compiler_identity, "native_module", lambda: str(tmp_path / "native.so"))
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 60_000_000_000)
    return tmp_path


@pytest.fixture
def hashings(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry for each time that the sources were hashed."""
    seen: list[bool] = []
    real = engine_identity.hash_python

    def counted() -> Mapping[str, str]:
        seen.append(True)
        return real()

    monkeypatch.setattr(engine_identity, "hash_python", counted)
    return seen


def asked(copy: Path) -> Identities:
    """As in a new process."""
    return installation.identities.__wrapped__(copy / "hints")


def hashed() -> Identities:
    python = engine_identity.hash_python()
    native = build_facts()["native_digest"]
    return Identities(compiler_identity.digest_with(python), engine_identity.combined(native, python))


def notes(copy: Path) -> list[Path]:
    return list((copy / "hints").glob("*"))


def test_the_installation_at_hand(tmp_path: Path) -> None:
    assert installation.identities(tmp_path) == (compiler_digest(), engine_identity.engine_identity())


def test_hashed_once_and_known_after(copy: Path, hashings: list[bool]) -> None:
    first = asked(copy)
    assert first == (compiler_digest(), engine_identity.engine_identity())
    assert [path.stat().st_mode & 0o777 for path in notes(copy)] == [0o600]
    assert asked(copy) == asked(copy) == first
    assert len(hashings) == 1


@pytest.mark.parametrize("name", ["program/*.py", "tables/unicode/*", "native.so"])
def test_a_change_that_keeps_size_and_time_is_seen(copy: Path, name: str) -> None:
    known = asked(copy)
    for path in sorted(copy.glob(name)):
        status, data = path.stat(), path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        changed = asked(copy)
        assert changed == hashed() != known, path
        assert asked(copy) == changed
        path.write_bytes(data)
        assert asked(copy) == known


def test_a_file_more_or_less_or_moved_is_seen(copy: Path) -> None:
    known = asked(copy)
    added = copy / "program" / "another.py"
    added.write_text("")
    assert asked(copy) == hashed() != known
    added.unlink()
    assert asked(copy) == known
    a, b = copy / "program" / "cuts.py", copy / "program" / "boundary.py"
    a.rename(added)
    b.rename(a)
    added.rename(b)
    assert asked(copy) == hashed() != known


@pytest.mark.parametrize("name", ["identity", "native_digest", "compiler", "flags", "build_type"])
def test_a_note_of_another_build_is_none_whatever_the_files_look_like(
    copy: Path, name: str, hashings: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(copy)
    monkeypatch.setattr(engine_identity, "build_facts", lambda: {**build_facts(), name: "0" * 64})
    asked(copy)
    assert len(hashings) == 2


def test_what_changed_just_now_is_not_noted(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = (copy / "native.so").stat().st_ctime_ns
    monkeypatch.setattr(time, "time_ns", lambda: changed + 1_000_000_000)
    assert asked(copy) == hashed()
    assert not notes(copy)


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_files_that_others_can_write_are_hashed_every_time(copy: Path, mode: int, hashings: list[bool]) -> None:
    asked(copy)
    (copy / "program" / "cuts.py").chmod(mode)
    assert asked(copy) == asked(copy) == hashed()
    assert len(hashings) == 4


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b"[" * 3000])
def test_a_broken_note_is_no_note(copy: Path, data: bytes) -> None:
    known = asked(copy)
    for path in notes(copy):
        path.write_bytes(data)
    assert asked(copy) == known


def test_a_note_that_others_can_write_is_no_note(copy: Path, hashings: list[bool]) -> None:
    asked(copy)
    for path in notes(copy):
        path.chmod(0o602)
    asked(copy)
    assert len(hashings) == 2


def test_no_place_for_a_note_costs_the_hashing_alone(copy: Path, hashings: list[bool]) -> None:
    (copy / "hints").write_text("a file")
    first: Any = asked(copy)
    assert first == asked(copy) == (compiler_digest(), engine_identity.engine_identity())
    assert len(hashings) == 2
