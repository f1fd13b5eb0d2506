"""The cache of cubins: an entry holds or is compiled again, whoever damaged it, and never is anything else believed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernels import FakeToolchain, make_cubin
from tests.support.material import ROOT
from tests.support.namespaces import can_unshare, read_only
from toktier.canonical import canonical_json
from toktier.gpu import cubin_cache, jit
from toktier.gpu.cubin_cache import CUBIN, RECORD, CubinCache, Damaged, key_of
from toktier.gpu.kernel_sources import read_sources

INPUTS = {"architecture": "sm_90", "sources": {}}
KEY = key_of(INPUTS)
DATA = make_cubin("sm_90")


@pytest.fixture
def cache(tmp_path: Path) -> CubinCache:
    return CubinCache(tmp_path / "gpu")


def make(fake: FakeToolchain, cache: CubinCache, architecture: str = "sm_90") -> jit.Made:
    return jit.make(fake.toolchain, read_sources(), architecture, cache)


def test_an_entry_is_found_again_private_and_whole(cache: CubinCache) -> None:
    assert cache.load(KEY) is None
    path = cache.store(INPUTS, DATA, {"toktier": "0"})
    stored = cache.load(KEY)
    assert stored is not None
    assert (stored.data, stored.path) == (DATA, path)
    assert stored.record["toktier"] == "0"
    assert path == cache.root / KEY[:2] / KEY
    assert sorted(p.name for p in path.iterdir()) == [RECORD, CUBIN]
    assert {p.stat().st_mode & 0o777 for p in path.iterdir()} == {0o600}
    assert {p.stat().st_mode & 0o777 for p in (path, path.parent, cache.root)} == {0o700}
    assert list(cache.entries()) == [KEY]


def _edit_record(path: Path, **members: object) -> None:
    record = json.loads((path / RECORD).read_bytes()) | members
    (path / RECORD).write_bytes(canonical_json(record))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cubin cut": lambda path: os.truncate(path / CUBIN, 100),
    "cubin of other bytes": lambda path: (path / CUBIN).write_bytes(make_cubin("sm_90", salt=b"x")),
    "cubin gone": lambda path: (path / CUBIN).unlink(),
    "cubin a directory": lambda path: ((path / CUBIN).unlink(), (path / CUBIN).mkdir()),
    "cubin a FIFO": lambda path: ((path / CUBIN).unlink(), os.mkfifo(path / CUBIN)),
    "cubin a link": lambda path: ((path / CUBIN).rename(path / "x"), (path / CUBIN).symlink_to("x")),
    "cubin writable by others": lambda path: (path / CUBIN).chmod(0o666),
    "cubin huge": lambda path: os.truncate(path / CUBIN, 1 << 30),
    "record gone": lambda path: (path / RECORD).unlink(),
    "record empty": lambda path: (path / RECORD).write_bytes(b""),
    "record no JSON": lambda path: (path / RECORD).write_bytes(b"{"),
    "record deep": lambda path: (path / RECORD).write_bytes(b"[" * 60_000),
    "record a list": lambda path: (path / RECORD).write_bytes(b"[]"),
    "record huge": lambda path: (path / RECORD).write_bytes(b" " * (1 << 20)),
    "record of another schema": lambda path: _edit_record(path, schema_version=2),
    "record without digest": lambda path: _edit_record(path, sha256=None),
    "record writable by others": lambda path: (path / RECORD).chmod(0o660),
    "record of other inputs": lambda path: _edit_record(path, inputs={"architecture": "sm_80", "sources": {}}),
    "record of another key": lambda path: _edit_record(path, key="0" * 64),
    "entry a file": lambda path: (_remove(path), path.write_bytes(b"x")),
    "entry a dangling link": lambda path: (_remove(path), path.symlink_to("nowhere")),
}


def _remove(path: Path) -> None:
    for name in (CUBIN, RECORD):
        (path / name).unlink()
    path.rmdir()


@pytest.mark.parametrize("damage", DAMAGE)
def test_whatever_does_not_hold_is_damage_and_is_replaced(cache: CubinCache, damage: str) -> None:
    path = cache.store(INPUTS, DATA, {})
    DAMAGE[damage](path)
    with pytest.raises(Damaged):
        cache.load(KEY)
    cache.store(INPUTS, DATA, {})
    stored = cache.load(KEY)
    assert stored is not None
    assert stored.data == DATA


def test_an_entry_that_was_moved_from_another_key_is_damage(cache: CubinCache) -> None:
    path = cache.store(INPUTS, DATA, {})
    other = "0" * 64
    (cache.root / "00").mkdir()
    path.rename(cache.path_of(other))
    with pytest.raises(Damaged, match="of another entry"):
        cache.load(other)


def test_kernels_are_compiled_once_and_then_kept(fake: FakeToolchain, cache: CubinCache) -> None:
    first, second = make(fake, cache), make(fake, cache)
    assert (first.data, first.from_cache, first.notices) == (DATA, False, ())
    assert (second.data, second.from_cache, second.path) == (DATA, True, first.path)
    assert len(fake.compilations) == 1
    make(fake, cache, "sm_80")
    assert len(fake.compilations) == 2
    assert not list(cache.root.rglob("*.lock"))
    assert not list(cache.root.rglob(".tmp-*"))


def test_another_build_of_nvrtc_has_entries_of_its_own(fake: FakeToolchain, cache: CubinCache) -> None:
    make(fake, cache)
    library = fake.libraries / "libnvrtc.so.13"
    library.write_bytes(library.read_bytes() + b"another build")
    make(fake, cache)
    assert len(fake.compilations) == 2
    assert len(list(cache.entries())) == 2


def test_a_damaged_entry_is_compiled_again_with_a_notice(fake: FakeToolchain, cache: CubinCache) -> None:
    path = make(fake, cache).path
    assert path is not None
    os.truncate(path / CUBIN, 100)
    again = make(fake, cache)
    assert (again.data, again.from_cache) == (DATA, False)
    assert again.notices == (
        "the kept kernels for sm_90 are damaged and compiled again: its cubin is not the one that was stored",
    )
    assert make(fake, cache).notices == ()


def test_a_whole_entry_of_kernels_that_the_module_cannot_launch_is_compiled_again(
    fake: FakeToolchain, cache: CubinCache
) -> None:
    inputs = jit.inputs_of(fake.toolchain, read_sources(), "sm_90")
    cache.store(inputs, make_cubin("sm_90", abi=[1, 2]), {})
    made = make(fake, cache)
    assert made.data == DATA
    assert "its ABI block is [1, 2]" in made.notices[0]


def test_many_at_once_compile_once(fake: FakeToolchain, cache: CubinCache) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: make(fake, cache), range(4)))
    assert {m.data for m in made} == {DATA}
    assert len(fake.compilations) == 1


_PROCESS = """
import hashlib, sys
from pathlib import Path
from toktier.gpu import jit
from toktier.gpu.cubin_cache import CubinCache
from toktier.gpu.kernel_sources import read_sources
from toktier.gpu.toolchain import Places, find_toolchain
toolchain = find_toolchain(Places((sys.argv[1],), {}, Path("/nonexistent")))
made = jit.make(toolchain, read_sources(), "sm_90", CubinCache(Path(sys.argv[2])))
print(hashlib.sha256(made.data).hexdigest(), made.from_cache, made.path is not None, *made.notices)
"""


def process_of(fake: FakeToolchain, root: Path) -> list[str]:
    return [sys.executable, "-c", _PROCESS, str(fake.site), str(root)]


def test_two_processes_at_once_compile_once(fake: FakeToolchain, tmp_path: Path) -> None:
    command = process_of(fake, tmp_path / "gpu")
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, cwd=ROOT, **pipes) for _ in range(2)]
    answers = [child.communicate(timeout=600) for child in both]
    assert [child.returncode for child in both] == [0, 0], answers
    assert len({stdout.split()[0] for stdout, _ in answers}) == 1
    assert len(fake.compilations) == 1


@pytest.mark.skipif(not can_unshare("--mount"), reason="needs a private mount namespace")
def test_a_cache_that_cannot_be_written_keeps_nothing_and_compiles(fake: FakeToolchain, tmp_path: Path) -> None:
    root = tmp_path / "gpu"
    root.mkdir()
    child = subprocess.run(read_only(root, *process_of(fake, root)), cwd=ROOT, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    _, from_cache, kept, notice = child.stdout.split(maxsplit=3)
    assert (from_cache, kept) == ("False", "False")
    assert notice.startswith("the compiled kernels are not kept: cannot make the directory ")
    assert "Read-only file system" in notice
    assert not list(root.iterdir())


@pytest.mark.skipif(not can_unshare("--mount"), reason="needs a private mount namespace")
def test_a_cache_that_is_only_read_still_serves(fake: FakeToolchain, cache: CubinCache) -> None:
    make(fake, cache)
    root = cache.root.parent
    child = subprocess.run(read_only(root, *process_of(fake, root)), cwd=ROOT, capture_output=True, text=True)
    assert child.stdout.split()[1:] == ["True", "True"], child.stderr
    assert len(fake.compilations) == 1


def test_the_least_recently_used_entries_go(cache: CubinCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubin_cache, "KEPT_ENTRIES", 3)
    keys = []
    for n in range(5):
        inputs = {"architecture": "sm_90", "n": n}
        path = cache.store(inputs, DATA, {})
        keys.append(key_of(inputs))
        os.utime(path / RECORD, (n, n))
    assert set(cache.entries()) == set(keys[2:])


def test_clean_takes_everything_whether_it_holds_or_not(cache: CubinCache) -> None:
    cache.store(INPUTS, DATA, {})
    (cache.store({"n": 1}, DATA, {}) / RECORD).unlink()
    cache.libraries.mkdir()
    (cache.libraries / "x.json").touch()
    (cache.root / "notes.txt").touch()  # somebody else's
    removed, freed = cache.clean()
    assert removed == 2
    assert freed > 2 * len(DATA)
    assert list(cache.entries()) == []
    assert not list(cache.libraries.iterdir())
    assert (cache.root / "notes.txt").exists()
    assert cache.clean() == (0, 0)
