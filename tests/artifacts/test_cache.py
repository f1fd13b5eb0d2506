"""The cache: bytes under their digest or nothing; damage is seen on every look; hints are never more than hints."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.artifacts.conftest import World
from tests.support.material import ROOT
from toktier.artifacts import cache as cache_module
from toktier.artifacts.cache import ArtifactCache, hash_file
from toktier.artifacts.pins import PinnedFile
from toktier.errors import ArtifactDamaged, ArtifactHashMismatch
from toktier.program import trust

NOBODY = 65534


@pytest.fixture
def stored(world: World) -> tuple[ArtifactCache, PinnedFile, Path]:
    pin = world.pins.families["alpha"].tokenizer
    assert world.cache.store(pin, world.alpha)
    return world.cache, pin, world.cache.blob_path(pin.sha256)


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hints may be written at once: no test here changes a file twice within a tick of the clock."""
    monkeypatch.setattr(trust, "_SETTLED_NS", 0)


def test_a_stored_blob_is_private_whole_and_named_by_its_digest(stored: tuple[ArtifactCache, PinnedFile, Path]) -> None:
    cache, pin, path = stored
    assert hash_file(path)[0] == pin.sha256 == path.name
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert cache.state(pin).status == "ok"


def test_storing_again_changes_nothing(world: World, stored: tuple[ArtifactCache, PinnedFile, Path]) -> None:
    cache, pin, path = stored
    before = path.stat()
    assert cache.store(pin, world.alpha) is False
    assert path.stat().st_ino == before.st_ino


def test_other_bytes_are_never_stored(world: World) -> None:
    pin = world.pins.families["alpha"].tokenizer
    with pytest.raises(ArtifactHashMismatch):
        world.cache.store(pin, world.alpha[:-1] + b"x")
    assert not world.home.exists()


def after_a_tick(path: Path) -> None:
    """Until the clock of the file system has gone on since `path` changed: within one tick a change leaves no trace."""
    probe = path.with_name("probe")
    while True:
        probe.touch()
        if probe.stat().st_ctime_ns > path.stat().st_ctime_ns:
            break
    probe.unlink()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut by one byte": lambda data: data[:-1],
    "longer": lambda data: data + b"\n",
    "one bit flipped": lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_seen_every_time_and_repaired_by_storing(
    world: World, stored: tuple[ArtifactCache, PinnedFile, Path], damage: str
) -> None:
    cache, pin, path = stored
    assert cache.state(pin).status == "ok"
    assert cache.verified_at(pin.sha256) is not None
    after_a_tick(path)
    times = path.stat()
    path.write_bytes(DAMAGES[damage](world.alpha))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # only ctime tells, and it cannot be set
    for _ in range(2):
        state = cache.state(pin)
        assert state.status == "damaged"
        error = cache.damage(pin, state)
        assert error.exit_code == 5
        assert str(path) in error.message
        assert str(len(world.alpha)) in error.message or pin.sha256 in error.message
    assert cache.verified_at(pin.sha256) is None
    assert cache.inspect(pin).status == "damaged"
    assert cache.store(pin, world.alpha)
    assert cache.state(pin).status == "ok"


def test_a_stored_blob_counts_as_verified_when_stored_until_it_changes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "_SETTLED_NS", 10**12)  # as right after storing: no hint may be written
    pin = world.pins.families["alpha"].tokenizer
    world.cache.store(pin, world.alpha)
    verified = world.cache.verified_at(pin.sha256)
    assert verified is not None
    assert verified[1] == "stored"
    hashed: list[Path] = []
    monkeypatch.setattr(cache_module, "hash_file", lambda p: hashed.append(p) or hash_file(p))
    assert world.cache.state(pin).status == "ok"
    assert len(hashed) == 1, "the record of storing was believed"
    monkeypatch.setattr(trust, "_SETTLED_NS", 0)
    world.cache.state(pin)
    verified = world.cache.verified_at(pin.sha256)
    assert verified is not None
    assert verified[1] == "hashed"
    path = world.cache.blob_path(pin.sha256)
    after_a_tick(path)
    path.write_bytes(world.alpha[:-1] + b"x")
    assert world.cache.verified_at(pin.sha256) is None
    world.cache.remove(pin)
    assert not [p for p in (world.cache.root / "verified").rglob("*") if p.is_file()]


def test_an_empty_blob_is_called_empty(stored: tuple[ArtifactCache, PinnedFile, Path]) -> None:
    cache, pin, path = stored
    path.write_bytes(b"")
    error = cache.damage(pin, cache.state(pin))
    assert isinstance(error, ArtifactDamaged)
    assert "is empty (0 bytes)" in error.message


def test_a_hint_saves_the_hash_and_a_forged_one_does_not_help(
    stored: tuple[ArtifactCache, PinnedFile, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, pin, path = stored
    cache.state(pin)
    hashed: list[Path] = []
    monkeypatch.setattr(cache_module, "hash_file", lambda p: hashed.append(p) or hash_file(p))
    assert cache.state(pin).status == "ok"
    assert hashed == []
    assert cache.state(pin, trust_hint=False).status == "ok"
    assert hashed == [path]
    os.chmod(path, 0o620)  # others may write it: the hint says nothing any more
    cache.state(pin)
    cache.state(pin)
    assert len(hashed) == 3
    os.chmod(path, 0o600)
    hint = next((cache.root / "verified").rglob("*.json"))
    for garbage in (b"", b"[" * 4000, b"null", b'{"sha256": 1}', b"\xff"):
        hint.write_bytes(garbage)
        assert cache.state(pin).status == "ok"


def test_a_fresh_change_is_never_hinted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_SETTLED_NS", 10**12)
    pin = world.pins.families["alpha"].tokenizer
    world.cache.store(pin, world.alpha)
    world.cache.state(pin)
    assert not list((world.cache.root / "verified").rglob("*.json"))


def test_inspecting_writes_nothing(stored: tuple[ArtifactCache, PinnedFile, Path]) -> None:
    cache, pin, _ = stored
    before = sorted(p for p in cache.root.rglob("*"))
    assert cache.inspect(pin).status == "ok"
    assert sorted(p for p in cache.root.rglob("*")) == before


def test_a_directory_in_the_way_is_damage_and_is_set_aside(world: World) -> None:
    pin = world.pins.families["alpha"].tokenizer
    path = world.cache.blob_path(pin.sha256)
    path.mkdir(parents=True)
    assert world.cache.state(pin).status == "damaged"
    assert world.cache.store(pin, world.alpha)
    assert world.cache.inspect(pin).status == "ok"


def test_a_note_that_cannot_be_read_is_no_note(world: World) -> None:
    world.cache.note("alpha", {"tokenizer.json": "0" * 64}, "test")
    assert world.cache.read_note("alpha") is not None
    for garbage in (b"", b"{", b"[]", b"[" * 70_000, b'{"schema": "other"}'):
        (world.cache.root / "families" / "alpha.json").write_bytes(garbage)
        assert world.cache.read_note("alpha") is None


def as_nobody(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs code without any privilege: as root no permission ever stops anything."""
    imports = "import os, toktier.artifacts.resolve, toktier.program\n"  # while everything may still be read
    drop = f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    return subprocess.run(
        [sys.executable, "-c", imports + drop + textwrap.dedent(code), *arguments],
        capture_output=True, text=True, cwd=ROOT, env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to drop it")
def test_a_read_only_cache_serves_and_refuses_to_store(tmp_path: Path, world: World) -> None:
    pin = world.pins.families["alpha"].tokenizer
    world.cache.store(pin, world.alpha)
    for path in [world.home, *world.home.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for path in [tmp_path, *tmp_path.parents]:
        if path != path.parent and path.stat().st_uid == os.geteuid():
            path.chmod(path.stat().st_mode | 0o055)
    code = """
        import hashlib, sys
        from pathlib import Path
        from toktier.artifacts.cache import ArtifactCache
        from toktier.artifacts.pins import PinnedFile
        from toktier.errors import EnvironmentFault
        cache = ArtifactCache(Path(sys.argv[1]))
        good = PinnedFile("alpha", "tokenizer.json", sys.argv[2], int(sys.argv[3]))
        assert cache.state(good).status == "ok"
        cache.note("alpha", {}, "lost silently")
        data = b"other"
        new = PinnedFile("beta", "tokenizer.json", hashlib.sha256(data).hexdigest(), len(data))
        try:
            cache.store(new, data)
        except EnvironmentFault as error:
            print(error.message)
        else:
            sys.exit("stored in a read-only cache")
    """
    run = as_nobody(code, str(world.home / "cache"), pin.sha256, str(pin.size))
    assert run.returncode == 0, run.stderr
    assert str(world.home) in run.stdout
    assert "Permission denied" in run.stdout


def test_eight_processes_store_one_copy(world: World) -> None:
    pin = world.pins.families["alpha"].tokenizer
    (world.home.parent / "data").write_bytes(world.alpha)
    code = """
        import sys
        from pathlib import Path
        from toktier.artifacts.cache import ArtifactCache
        from toktier.artifacts.pins import PinnedFile
        cache = ArtifactCache(Path(sys.argv[1]))
        pin = PinnedFile("alpha", "tokenizer.json", sys.argv[2], int(sys.argv[3]))
        print(cache.store(pin, Path(sys.argv[4]).read_bytes()))
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(world.home / "cache"), pin.sha256, str(pin.size),
               str(world.home.parent / "data")]  # fmt: skip
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(8)]
    answers = [process.communicate(timeout=300)[0].strip() for process in running]
    assert [process.returncode for process in running] == [0] * 8
    assert sorted(answers) == ["False"] * 7 + ["True"]
    files = [p for p in world.cache.root.rglob("*") if p.is_file() and "verified" not in p.parts]
    assert files == [world.cache.blob_path(pin.sha256)], "a lock or a temporary file was left"
    assert world.cache.inspect(pin).status == "ok"


@pytest.mark.parametrize("place", ["note", "hint", "stored", "blob"])
def test_a_fifo_in_the_cache_is_no_wait(world: World, place: str) -> None:
    pin = world.pins.families["alpha"].tokenizer
    world.cache.store(pin, world.alpha)
    world.cache.note("alpha", {}, "test")
    verified = world.cache.root / "verified" / pin.sha256[:2]
    path = {
        "note": world.cache.root / "families" / "alpha.json",
        "hint": verified / f"{pin.sha256}.json",
        "stored": verified / f"{pin.sha256}.stored",
        "blob": world.cache.blob_path(pin.sha256),
    }[place]
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    code = (
        "import sys\nfrom pathlib import Path\nfrom toktier.artifacts.cache import ArtifactCache\n"
        "from toktier.artifacts.pins import PinnedFile\n"
        "cache = ArtifactCache(Path(sys.argv[1]))\n"
        "file = PinnedFile('alpha', 'tokenizer.json', sys.argv[2], int(sys.argv[3]))\n"
        "print(cache.state(file).status, cache.verified_at(file.sha256) is None, cache.read_note('alpha') is None)\n"
    )
    arguments = [str(world.cache.root.parent), pin.sha256, str(pin.size)]
    run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    status, _, no_note = run.stdout.split()
    assert status == ("damaged" if place == "blob" else "ok")
    assert no_note == str(place == "note")


def test_a_blob_that_becomes_a_fifo_is_an_error_and_no_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a regular file"):
        hash_file(tmp_path / "fifo")


def test_what_killed_writers_left_is_removed_by_the_next_write_of_any_blob(world: World) -> None:
    alpha, beta = world.pins.families["alpha"].tokenizer, world.pins.families["beta"].tokenizer
    world.cache.store(alpha, world.alpha)
    world.cache.note("alpha", {}, "test")
    places = [world.cache.blob_path(alpha.sha256).parent, world.cache.root / "families"]
    places.append(world.cache.root / "verified" / alpha.sha256[:2])
    old, young = [p / ".tmp-1-old" for p in places], [p / ".tmp-1-young" for p in places]
    for path in old + young:
        path.write_bytes(b"half")
    for path in old:
        os.utime(path, (time.time() - 100_000,) * 2)
    world.cache.store(beta, world.beta)
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in young), "a live writer may own it"
    assert world.cache.inspect(alpha).status == "ok"


@pytest.mark.parametrize("source", ["import: \udcff.json", "import: \x1b]0;x\x07", "x" * 100_000])
def test_any_source_can_be_noted(world: World, source: str) -> None:
    world.cache.note("alpha", {}, source)
    note = world.cache.read_note("alpha")
    assert note is not None
    assert note["source"].isprintable()
    assert len(note["source"]) <= 300


@pytest.mark.parametrize(
    "files", ['{"a": 1.5}', '{"a": "\\ud800"}', '{"\\ud800": "b"}', '{"a": null, "b": [[]]}', "[1]"]
)
def test_a_note_with_other_content_does_not_end_the_next_one(world: World, files: str) -> None:
    directory = world.cache.root / "families"
    directory.mkdir(parents=True)
    (directory / "alpha.json").write_text(f'{{"schema": "toktier.family_note", "files": {files}}}')
    world.cache.note("alpha", {"tokenizer.json": "00"}, "test")
    note = world.cache.read_note("alpha")
    assert note is not None
    assert note["files"] == {"tokenizer.json": "00"}
