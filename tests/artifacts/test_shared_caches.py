"""Caches beside the user's own, caches of a group, and caches in which anyone could write."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.artifacts.conftest import World
from tests.support.material import ROOT
from tests.support.namespaces import can_unshare, read_only
from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.fetch import fetch
from toktier.artifacts.resolve import obtain
from toktier.config import Config, Settings, resolve_settings
from toktier.errors import ArtifactHashMismatch, ConfigInvalid, EnvironmentFault
from toktier.program import trust

NOBODY = 65534


@pytest.fixture
def system(world: World, tmp_path: Path) -> Path:
    """A filled cache of the system; the user's own is empty."""
    place = tmp_path / "system" / "cache"
    ArtifactCache(place).store(world.pins.families["alpha"].tokenizer, world.alpha)
    ArtifactCache(place).note("alpha", {}, "seeded")
    return place


def beside(world: World, *shared: Path, **more: object) -> Settings:
    return resolve_settings(Config(home=world.home, shared_caches=shared, offline=True), environ={})


def snapshot(directory: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.lstat().st_mtime_ns, p.lstat().st_ino) for p in directory.rglob("*")}


def test_what_the_user_lacks_is_read_from_the_shared_cache_and_nothing_is_written_there(
    world: World, system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "_SETTLED_NS", 0)
    before = snapshot(system)
    settings = beside(world, tmp_path / "not-mounted", system)
    artifact = obtain("alpha", settings, pins=world.pins)
    assert artifact.path == ArtifactCache(system).blob_path(artifact.sha256)
    report = fetch("alpha", settings, pins=world.pins)
    assert report.files["tokenizer.json"].outcome == "cached"
    cache = ArtifactCache.of(settings)
    assert cache.store(world.pins.families["alpha"].tokenizer, world.alpha) is False
    assert (cache.read_note("alpha") or {})["source"] == "seeded"
    assert snapshot(system) == before
    assert not list(world.home.rglob(artifact.sha256)), "it was copied"


def test_the_user_s_own_copy_comes_first_and_its_damage_is_not_covered_up(world: World, system: Path) -> None:
    pin = world.pins.families["alpha"].tokenizer
    world.cache.store(pin, world.alpha)
    settings = beside(world, system)
    assert obtain("alpha", settings, pins=world.pins).path == world.cache.blob_path(pin.sha256)
    world.cache.blob_path(pin.sha256).write_bytes(world.alpha[:-1] + b"x")
    with pytest.raises(ArtifactHashMismatch):
        obtain("alpha", settings, pins=world.pins)


def test_damage_in_one_shared_cache_is_passed_over_for_the_next_and_mended_in_the_user_s_own(
    world: World, system: Path, tmp_path: Path
) -> None:
    pin = world.pins.families["alpha"].tokenizer
    bad = tmp_path / "bad" / "cache"
    shutil.copytree(system, bad)
    blob = ArtifactCache(bad).blob_path(pin.sha256)
    blob.write_bytes(world.alpha[:-1] + b"x")
    assert obtain("alpha", beside(world, bad, system), pins=world.pins).path.is_relative_to(system)
    with pytest.raises(ArtifactHashMismatch):
        obtain("alpha", beside(world, bad), pins=world.pins)
    (tmp_path / "alpha.json").write_bytes(world.alpha)
    fetch("alpha", beside(world, bad), source=str(tmp_path / "alpha.json"), pins=world.pins)
    assert obtain("alpha", beside(world, bad), pins=world.pins).path == world.cache.blob_path(pin.sha256)
    assert blob.read_bytes() != world.alpha


def test_a_host_without_home_loads_from_a_shared_cache_and_stores_nothing(world: World, system: Path) -> None:
    before = snapshot(system)
    settings = resolve_settings(Config(shared_caches=[system], offline=True), environ={})
    assert settings.cache_dir is None
    assert obtain("alpha", settings, pins=world.pins).path.is_relative_to(system)
    with pytest.raises(ConfigInvalid, match="no cache directory"):
        obtain("beta", settings, pins=world.pins)
    cache = ArtifactCache.readable(settings)
    assert cache is not None
    with pytest.raises(ConfigInvalid):
        cache.store(world.pins.families["beta"].tokenizer, world.beta)
    assert snapshot(system) == before


@pytest.mark.skipif(not can_unshare("--mount"), reason="needs the right to make a read-only mount")
def test_a_shared_cache_on_a_read_only_mount(world: World, system: Path) -> None:
    pin = world.pins.families["alpha"].tokenizer
    code = """
        import sys
        from pathlib import Path
        from toktier.artifacts.cache import ArtifactCache
        from toktier.artifacts.pins import PinnedFile
        own, system, digest, size = sys.argv[1:]
        try:
            Path(system, "probe").touch()
        except OSError:
            pass
        else:
            sys.exit("the mount is not read-only")
        cache = ArtifactCache(Path(own), shared=[Path(system)])
        state = cache.state(PinnedFile("alpha", "tokenizer.json", digest, int(size)))
        print(state.status, state.shared)
    """
    arguments = (str(world.home / "cache"), str(system), pin.sha256, str(pin.size))
    command = read_only(system, sys.executable, "-c", textwrap.dedent(code), *arguments)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == ["ok", "True"], done.stderr


def test_a_group_s_cache_has_the_group_s_bits(world: World) -> None:
    before = os.umask(0o077)
    try:
        cache = ArtifactCache.of(resolve_settings(Config(home=world.home, cache_mode="group"), environ={}))
        pin = world.pins.families["alpha"].tokenizer
        cache.store(pin, world.alpha)
        cache.note("alpha", {}, "test")
        with cache.lock("x"):
            lock = cache.root / "locks" / "x.lock"
            assert stat.S_IMODE(lock.stat().st_mode) == 0o664
    finally:
        os.umask(before)
    for path in [world.home, *world.home.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o2770 if path.is_dir() else 0o660), path
    assert cache.state(pin).status == "ok"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become two users")
def test_two_users_of_a_group_share_a_cache_and_a_third_does_not(world: World, tmp_path: Path) -> None:
    group = 54_321
    for path in [tmp_path, *tmp_path.parents]:
        if path != path.parent and path.stat().st_uid == os.geteuid():
            path.chmod(path.stat().st_mode | 0o055)
    home = tmp_path / "srv"
    home.mkdir()
    os.chown(home, 0, group)
    home.chmod(0o2770)
    code = """
        import hashlib, os, sys
        from pathlib import Path
        import toktier.artifacts.cache, toktier.program
        from toktier.artifacts.cache import ArtifactCache
        from toktier.artifacts.pins import PinnedFile
        from toktier.errors import EnvironmentFault
        from toktier.storage import GROUP
        "".encode("utf-16-be")  # the codec is imported while everything may still be read
        user, group, home, turn = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
        os.setgroups([group]); os.setgid(user); os.setuid(user); os.umask(0o077)
        cache = ArtifactCache(Path(home, "cache"), modes=GROUP)
        data = [b"one" * 1000, b"two" * 1000]
        pins = [PinnedFile("f", "t", hashlib.sha256(d).hexdigest(), len(d)) for d in data]
        try:
            if turn == "1":
                print(cache.store(pins[0], data[0]))
            else:
                print(cache.state(pins[0]).status, cache.store(pins[1], data[1]), cache.remove(pins[0]))
        except EnvironmentFault as error:
            print(error.details["errno"] if "errno" in error.details else error.message)
    """

    def run(user: int, member: bool, turn: str) -> str:
        arguments = (str(user), str(group if member else user), str(home), turn)
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), *arguments], capture_output=True, text=True,
                              cwd=ROOT, env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"})  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert run(20_001, True, "1") == "True"
    assert run(20_002, True, "2") == "ok True 3000"
    assert "EACCES" in run(20_003, False, "1") or "Permission" in run(20_003, False, "1")


@pytest.mark.parametrize("which", ["home", "cache", "artifacts"])
def test_nothing_is_stored_where_every_user_could_replace_it(world: World, which: str) -> None:
    pin = world.pins.families["alpha"].tokenizer
    world.cache.root.mkdir(parents=True)
    place = {"home": world.home, "cache": world.home / "cache", "artifacts": world.cache.root}[which]
    place.chmod(0o777)
    with pytest.raises(EnvironmentFault, match="written by every user") as caught:
        world.cache.store(pin, world.alpha)
    assert str(place) in str(caught.value.remedy)
    assert caught.value.exit_code == 7
    assert not [p for p in world.home.rglob("*") if p.is_file()]
    place.chmod(0o1777)
    assert world.cache.store(pin, world.alpha)
    place.chmod(0o777)
    assert world.cache.state(pin).status == "ok", "reading is safe: what is read is hashed"
