"""Damaged files are set aside when a right one is in hand, kept within bounds, and never lost to a full disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.artifacts.conftest import World
from toktier.artifacts import cache as cache_module
from toktier.artifacts import quarantine
from toktier.errors import EnvironmentFault


def set_aside_files(world: World) -> list[Path]:
    return sorted((world.cache.root / "quarantine").iterdir())


def test_a_damaged_blob_is_set_aside_when_it_is_replaced_and_not_before(world: World) -> None:
    pin = world.pins.families["alpha"].tokenizer
    world.cache.store(pin, world.alpha)
    world.cache.blob_path(pin.sha256).write_bytes(b"damaged")
    for _ in range(2):
        assert world.cache.state(pin).status == "damaged"
    assert not (world.cache.root / "quarantine").exists()
    assert world.cache.store(pin, world.alpha)
    (file,) = set_aside_files(world)
    assert file.read_bytes() == b"damaged"
    assert file.name.endswith(pin.sha256)
    assert world.cache.inspect(pin).status == "ok"


def test_the_quarantine_is_bounded_in_files_and_bytes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = world.pins.families["alpha"].tokenizer
    for turn in range(quarantine.KEPT_FILES + 3):
        path = world.cache.blob_path(pin.sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * turn)
        world.cache.store(pin, world.alpha)
    assert len(set_aside_files(world)) == quarantine.KEPT_FILES
    monkeypatch.setattr(quarantine, "KEPT_BYTES", 10)
    world.cache.blob_path(pin.sha256).write_bytes(b"y" * 100)
    world.cache.store(pin, world.alpha)
    assert len(set_aside_files(world)) == 1, "the newest stays, whatever its size"


def test_a_directory_is_dropped_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "KEPT_FILES", 0)
    (tmp_path / "blob" / "below").mkdir(parents=True)
    assert quarantine.set_aside(tmp_path / "blob", tmp_path / "q") is not None
    assert list((tmp_path / "q").iterdir()) == []
    assert quarantine.set_aside(tmp_path / "absent", tmp_path / "q") is None


def test_when_the_right_bytes_cannot_be_written_the_damage_stays_where_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = world.pins.families["alpha"].tokenizer
    world.cache.store(pin, world.alpha)
    world.cache.blob_path(pin.sha256).write_bytes(b"damaged")

    def full(*arguments: object, **more: object) -> None:
        raise EnvironmentFault("cannot write: No space left on device")

    monkeypatch.setattr(cache_module, "atomic_writer", full)
    with pytest.raises(EnvironmentFault):
        world.cache.store(pin, world.alpha)
    assert world.cache.state(pin).status == "damaged"
