"""Bundles into the cache: all or nothing, by the pins alone, whoever else is at it and whenever it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.artifacts.conftest import World
from tests.artifacts.test_bundle_format import part
from tests.support.material import ROOT
from toktier.artifacts.bundle_import import import_bundle
from toktier.artifacts.bundle_verify import verify_bundle
from toktier.artifacts.bundle_writer import BundlePart, write_bundle
from toktier.artifacts.export import export_bundle
from toktier.artifacts.inventory import survey
from toktier.errors import (
    ArtifactHashMismatch,
    ArtifactNotFound,
    BundleInvalid,
    EnvironmentFault,
    UncertifiedTokenizer,
    UnknownFamily,
    UsageError,
)

ALPHA, BETA = f"alpha-{'a' * 12}", f"beta-{'b' * 12}"


def alpha(world: World, place: Path, *, complete: bool = True) -> BundlePart:
    files = {"tokenizer.json": world.alpha} | ({"tokenizer_config.json": world.alpha_config} if complete else {})
    return part(place, ALPHA, files)


def beta(world: World, place: Path) -> BundlePart:
    return part(place, BETA, {"tokenizer.json": world.beta})


def blobs(world: World) -> list[Path]:
    return sorted(p for p in (world.cache.root / "blobs").rglob("*") if p.is_file())


def staged(world: World) -> list[Path]:
    return list((world.cache.root / "staging").glob("*"))


@pytest.mark.parametrize("suffix", [".tar", ".tar.zst"])
def test_a_bundle_is_stored_and_known(world: World, tmp_path: Path, suffix: str) -> None:
    bundle = tmp_path / f"b{suffix}"
    write_bundle(bundle, [alpha(world, tmp_path), beta(world, tmp_path)])
    outcome = import_bundle(bundle, world.settings, pins=world.pins)
    assert {(i.file.family, i.file.name, i.outcome) for i in outcome.report.imported} == {
        ("alpha", "tokenizer.json", "stored"),
        ("alpha", "tokenizer_config.json", "stored"),
        ("beta", "tokenizer.json", "stored"),
    }
    for name in ("alpha", "beta"):
        assert survey(world.pins.family(name), world.cache, deep=True).complete
    assert len(blobs(world)) == 3
    assert {p.stat().st_mode & 0o777 for p in blobs(world)} == {0o600}
    assert not staged(world)
    again = import_bundle(bundle, world.settings, pins=world.pins)
    assert {i.outcome for i in again.report.imported} == {"cached"}


def test_a_loadable_bundle_says_what_it_lacks(world: World, tmp_path: Path) -> None:
    write_bundle(tmp_path / "b.tar", [alpha(world, tmp_path, complete=False)])
    outcome = import_bundle(tmp_path / "b.tar", world.settings, pins=world.pins)
    assert outcome.missing == {"alpha": ("tokenizer_config.json",)}
    assert verify_bundle(tmp_path / "b.tar", world.pins).missing == {"alpha": ("tokenizer_config.json",)}


def test_a_damaged_blob_is_replaced(world: World, tmp_path: Path) -> None:
    write_bundle(tmp_path / "b.tar", [alpha(world, tmp_path)])
    import_bundle(tmp_path / "b.tar", world.settings, pins=world.pins)
    pin = world.pins.family("alpha").tokenizer
    world.cache.blob_path(pin.sha256).write_bytes(b"x" * pin.size)
    outcome = import_bundle(tmp_path / "b.tar", world.settings, pins=world.pins)
    assert {(i.file.name, i.outcome) for i in outcome.report.imported} == {
        ("tokenizer.json", "replaced"),
        ("tokenizer_config.json", "cached"),
    }
    assert world.cache.inspect(pin).status == "ok"


def test_content_is_recognised_under_any_name_that_claims_nothing(world: World, tmp_path: Path) -> None:
    write_bundle(tmp_path / "b.tar", [part(tmp_path, "carried", {"some.bin": world.beta})])
    outcome = import_bundle(tmp_path / "b.tar", world.settings, pins=world.pins)
    assert [(i.file.family, i.file.name) for i in outcome.report.imported] == [("beta", "tokenizer.json")]


@pytest.mark.parametrize(
    ("alias", "name", "error"),
    [(ALPHA, "tokenizer.json", ArtifactHashMismatch), ("alpha-ffffffffffff", "tokenizer.json", ArtifactHashMismatch),
     ("mine", "tokenizer.json", UncertifiedTokenizer)],
)  # fmt: skip
def test_one_bad_part_voids_the_whole(
    world: World, tmp_path: Path, alias: str, name: str, error: type[Exception]
) -> None:
    parts = [part(tmp_path, alias, {name: b"{}"}), beta(world, tmp_path)]
    write_bundle(tmp_path / "b.tar", parts)
    with pytest.raises(error):
        import_bundle(tmp_path / "b.tar", world.settings, pins=world.pins)
    assert not blobs(world)
    assert not staged(world)


def test_damage_at_the_very_end_voids_what_was_staged(world: World, tmp_path: Path) -> None:
    write_bundle(tmp_path / "b.tar", [alpha(world, tmp_path), beta(world, tmp_path)])
    data = (tmp_path / "b.tar").read_bytes()
    for damaged in (data[:-1], data + b"\0", data[:-20000]):
        (tmp_path / "b.tar").write_bytes(damaged)
        with pytest.raises(BundleInvalid):
            import_bundle(tmp_path / "b.tar", world.settings, pins=world.pins)
        assert not blobs(world)
        assert not staged(world)


@pytest.mark.parametrize("suffix", [".tar", ".tar.zst"])
def test_no_prefix_of_a_bundle_is_a_bundle(world: World, tmp_path: Path, suffix: str) -> None:
    write_bundle(tmp_path / f"b{suffix}", [part(tmp_path, "x", {"a": b"1", "b": bytes(600)}), part(tmp_path, "y")])
    data = (tmp_path / f"b{suffix}").read_bytes()
    cuts = {n for block in range(0, len(data) + 512, 512) for n in (block - 1, block, block + 1)}
    path = tmp_path / f"cut{suffix}"
    for cut in sorted(n for n in cuts if 0 <= n < len(data)):
        path.write_bytes(data[:cut])
        report = verify_bundle(path, world.pins)
        assert isinstance(report.error, BundleInvalid)
        assert report.error.details["reason"] == ("truncated" if cut else "empty")
        assert not report.complete


def test_a_full_disk_is_said_before_anything_is_written(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(tmp_path / "b.tar", [alpha(world, tmp_path)])
    real = os.statvfs(tmp_path)

    class Full:
        f_bavail, f_frsize, f_blocks = 100, 1024, real.f_blocks

    monkeypatch.setattr(os, "statvfs", lambda _: Full)
    with pytest.raises(EnvironmentFault) as caught:
        import_bundle(tmp_path / "b.tar", world.settings, pins=world.pins)
    assert caught.value.details["needed_bytes"] == len(world.alpha) + len(world.alpha_config)
    assert caught.value.details["available_bytes"] == 102_400
    assert not staged(world)


CHILD = """
import sys
from pathlib import Path
from tests.attacks.bundles.craft import pins
from toktier.artifacts.bundle_import import import_bundle
from toktier.config import Config, resolve_settings
bundle, home, count = sys.argv[1:]
for _ in range(int(count)):
    report = import_bundle(Path(bundle), resolve_settings(Config(home=home), environ={}), pins=pins()).report
    assert {i.outcome for i in report.imported} <= {"stored", "cached"}, report
"""


def start(bundle: Path, home: Path, count: int = 1) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(bundle), str(home), str(count)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize("count", [5, pytest.param(50, marks=pytest.mark.ci)])
def test_eight_processes_import_at_once(world: World, tmp_path: Path, count: int) -> None:
    write_bundle(tmp_path / "b.tar", [alpha(world, tmp_path), beta(world, tmp_path)])
    children = [start(tmp_path / "b.tar", world.home, count) for _ in range(8)]
    for child in children:
        _, stderr = child.communicate(timeout=900)
        assert child.returncode == 0, stderr.decode()
    assert len(blobs(world)) == 3
    assert not staged(world)
    assert not list((world.cache.root / "locks").iterdir())
    assert survey(world.pins.family("alpha"), world.cache, deep=True).complete


def killed_imports(world: World, tmp_path: Path, times: int) -> None:
    """Kills an import after a growing delay; every state in between must be loadable as before or as after."""
    write_bundle(tmp_path / "b.tar", [alpha(world, tmp_path), beta(world, tmp_path)])
    families = [world.pins.family(name) for name in ("alpha", "beta")]
    started = time.monotonic()
    assert start(tmp_path / "b.tar", tmp_path / "other").wait(120) == 0
    whole = time.monotonic() - started
    for number in range(times):
        child = start(tmp_path / "b.tar", world.home)
        time.sleep(whole * (0.3 + 0.8 * number / times))
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=120)
        for family in families:
            state = survey(family, world.cache, deep=True)
            assert not state.damaged
            assert state.complete or not state.loadable
        if number % 3 == 2:
            for family in families:
                for file in family.files.values():
                    world.cache.remove(file)
    import_bundle(tmp_path / "b.tar", world.settings, pins=world.pins)
    assert all(survey(family, world.cache, deep=True).complete for family in families)


def test_killed_imports_leave_old_or_new(world: World, tmp_path: Path) -> None:
    killed_imports(world, tmp_path, 8)


@pytest.mark.parametrize("times", [pytest.param(50, marks=pytest.mark.ci), pytest.param(200, marks=pytest.mark.full)])
def test_many_killed_imports_leave_old_or_new(world: World, tmp_path: Path, times: int) -> None:
    killed_imports(world, tmp_path, times)


def test_what_killed_imports_left_goes_after_a_day(world: World, tmp_path: Path) -> None:
    left = world.cache.root / "staging" / "1-abc"
    fresh = world.cache.root / "staging" / "2-abc"
    for directory in (left, fresh):
        directory.mkdir(parents=True)
        (directory / "0").write_bytes(b"half")
    os.utime(left, (0, 0))
    write_bundle(tmp_path / "b.tar", [beta(world, tmp_path)])
    import_bundle(tmp_path / "b.tar", world.settings, pins=world.pins)
    assert staged(world) == [fresh]


# Export


def test_export_and_import_are_inverse(world: World, tmp_path: Path) -> None:
    write_bundle(tmp_path / "a.tar", [alpha(world, tmp_path)])
    import_bundle(tmp_path / "a.tar", world.settings, pins=world.pins)
    report = export_bundle(["alpha"], world.pins, world.settings, tmp_path / "b.tar")
    assert report.complete
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_export_of_a_loadable_family_names_what_is_missing(world: World, tmp_path: Path) -> None:
    world.cache.store(world.pins.family("alpha").tokenizer, world.alpha)
    report = export_bundle(["alpha"], world.pins, world.settings, tmp_path / "b.tar")
    assert report.families[0].missing == ("tokenizer_config.json",)
    assert report.written is not None
    refused = export_bundle(["alpha"], world.pins, world.settings, tmp_path / "c.tar", complete=True)
    assert refused.written is None
    assert not (tmp_path / "c.tar").exists()


def test_export_needs_the_bytes(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toktier.artifacts.export.on_this_host", lambda *_: None)
    for names, error in ((["beta"], ArtifactNotFound), (["gamma"], UnknownFamily), ([], UsageError)):
        with pytest.raises(error):
            export_bundle(names, world.pins, world.settings, tmp_path / "b.tar")
    pin = world.pins.family("beta").tokenizer
    world.cache.store(pin, world.beta)
    world.cache.blob_path(pin.sha256).write_bytes(b"y" * pin.size)
    with pytest.raises(ArtifactHashMismatch):
        export_bundle(["beta"], world.pins, world.settings, tmp_path / "b.tar")
    assert not (tmp_path / "b.tar").exists()
