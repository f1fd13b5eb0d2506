"""A mirror that we write: the hub's layout, readable by all, right or not written, and read back over HTTP."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.artifacts.conftest import World
from tests.artifacts.hub_server import Hub, serve
from toktier.artifacts.fetch import fetch
from toktier.artifacts.mirror_tree import write_family, write_sums
from toktier.config import Config, resolve_settings
from toktier.errors import ArtifactHashMismatch, ArtifactNotFound


@pytest.fixture
def filled(world: World) -> World:
    files = world.pins.families["alpha"].files
    world.cache.store(files["tokenizer.json"], world.alpha)
    world.cache.store(files["tokenizer_config.json"], world.alpha_config)
    return world


def served(root: Path) -> dict[str, bytes]:
    return {"/" + p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_the_tree_has_the_hub_s_layout_and_everyone_may_read_it(filled: World, tmp_path: Path) -> None:
    out = tmp_path / "tree"
    before = os.umask(0o077)
    try:
        report = write_family(filled.pins.families["alpha"], filled.cache, out)
        write_sums(out)
    finally:
        os.umask(before)
    assert report.complete
    place = f"org/Alpha/resolve/{'a' * 40}"
    files = served(out)
    assert set(files) == {f"/{place}/tokenizer.json", f"/{place}/tokenizer_config.json", "/SHA256SUMS"}
    assert files[f"/{place}/tokenizer.json"] == filled.alpha
    for path in [out, *out.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path
    checked = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=out, capture_output=True)
    assert checked.returncode == 0, checked.stderr


def test_writing_again_leaves_what_is_right_and_mends_what_is_not(filled: World, tmp_path: Path) -> None:
    family = filled.pins.families["alpha"]
    write_family(family, filled.cache, tmp_path)
    target = tmp_path / "org" / "Alpha" / "resolve" / ("a" * 40) / "tokenizer.json"
    inode = target.stat().st_ino
    assert {e.outcome for e in write_family(family, filled.cache, tmp_path).files} == {"unchanged"}
    assert target.stat().st_ino == inode
    target.write_bytes(b"damaged")
    assert {e.file.name: e.outcome for e in write_family(family, filled.cache, tmp_path).files} == {
        "tokenizer.json": "written",
        "tokenizer_config.json": "unchanged",
    }
    assert target.read_bytes() == filled.alpha


def test_what_the_cache_lacks_or_has_damaged_is_not_written(world: World, tmp_path: Path) -> None:
    family = world.pins.families["alpha"]
    with pytest.raises(ArtifactNotFound, match="not in the cache"):
        write_family(family, world.cache, tmp_path / "tree")
    world.cache.store(family.tokenizer, world.alpha)
    report = write_family(family, world.cache, tmp_path / "tree")
    assert not report.complete
    world.cache.blob_path(family.tokenizer.sha256).write_bytes(world.alpha[:-1] + b"x")
    with pytest.raises(ArtifactHashMismatch):
        write_family(family, world.cache, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("by", ["--from", "HF_ENDPOINT", "file"])
def test_a_tree_served_as_plain_files_is_a_source(
    filled: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("HF_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    out = tmp_path / "tree"
    write_family(filled.pins.families["alpha"], filled.cache, out)
    settings = resolve_settings(Config(home=tmp_path / "second"), environ={})
    with serve(Hub(served(out), static=True)) as hub:
        source = hub.url if by == "--from" else "hub"
        if by == "file":
            source = out.as_uri()
        if by == "HF_ENDPOINT":
            monkeypatch.setenv("HF_ENDPOINT", hub.url)
        report = fetch("alpha", settings, source=source, complete=True, pins=filled.pins)
    assert report.complete
    blobs = [p for p in (tmp_path / "second" / "cache" / "artifacts" / "blobs").rglob("*") if p.is_file()]
    assert {hashlib.sha256(p.read_bytes()).hexdigest() for p in blobs} == {p.name for p in blobs}
    assert len(blobs) == 2
