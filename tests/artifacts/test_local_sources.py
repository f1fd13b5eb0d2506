"""Installed packages whose records are broken are passed over; a good one beside them is still found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.artifacts.conftest import World
from tests.artifacts.test_fetch import installed
from toktier.artifacts.local_sources import installed_packages

RECORDS = {
    "not UTF-8": b"pkg/\xff.json,,\n",
    "a huge field": b'"' + b"x" * 200_000 + b'.json",,\n',
    "an open quote": b'"pkg/vocab.json,,\n',
    "a zero character": b"a\0b.json,,\n",
    "a superscript size": "pkg/vocab.json,,²\n".encode(),
    "a size of 5,000 digits": b"pkg/vocab.json,," + b"9" * 5000 + b"\n",
    "a name too long": b"x" * 9000 + b".json,,\n",
    "a carriage return": b"a\rb,,\n",
    "nothing": b"",
}


def package(site: Path, record: bytes) -> Path:
    """A package without digests that is searched before alpha_pkg."""
    info = site / "aaa-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: aaa\nVersion: 1\n")
    (info / "RECORD").write_bytes(record)
    return info


def found(world: World, monkeypatch: pytest.MonkeyPatch, site: Path) -> list[str]:
    monkeypatch.setattr("sys.path", [str(site / "first"), str(site)])
    wanted = {world.pins.families["alpha"].tokenizer.sha256}
    return [f.where for f in installed_packages(world.pins, wanted)]


@pytest.mark.parametrize("kind", RECORDS)
def test_a_broken_record_hides_no_other_package(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    package(tmp_path / "first", RECORDS[kind])
    installed(tmp_path, world.alpha)
    assert found(world, monkeypatch, tmp_path) == ["alpha-pkg 2.0, pkg/vocab.json"]


def test_a_fifo_or_a_directory_for_a_record_is_no_wait(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package(tmp_path / "first", b"") / "RECORD").unlink()
    os.mkfifo(tmp_path / "first" / "aaa-1.dist-info" / "RECORD")
    (tmp_path / "first" / "bbb-1.dist-info" / "RECORD").mkdir(parents=True)
    installed(tmp_path, world.alpha)
    assert found(world, monkeypatch, tmp_path) == ["alpha-pkg 2.0, pkg/vocab.json"]


@pytest.mark.parametrize(
    ("metadata", "label"),
    [
        (b"Name: \xff\nVersion: 2.0\n", "alpha_pkg 2.0"),
        (b"Name: a\x1b[2J\nVersion: 3\n\nName: body\n", "a\\x1b[2J 3"),
        (None, "alpha_pkg 2.0"),
    ],
)
def test_metadata_only_names_a_package(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metadata: bytes | None, label: str
) -> None:
    installed(tmp_path, world.alpha)
    path = tmp_path / "alpha_pkg-2.0.dist-info" / "METADATA"
    path.unlink()
    if metadata is None:
        os.mkfifo(path)
    else:
        path.write_bytes(metadata)
    assert found(world, monkeypatch, tmp_path) == [f"{label}, pkg/vocab.json"]
