"""The cache under many processes, under kills at any moment, on full and refusing disks, and on odd paths."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.artifacts.conftest import World, pin, tokenizer_bytes
from tests.support.material import ROOT
from tests.support.namespaces import can_unshare, small_disk
from toktier.artifacts.cache import ArtifactCache
from toktier.artifacts.pins import SCHEMA, SCHEMA_VERSION, root_digest

FAMILIES = 4

# What every child begins with: the pins of the test instead of the shipped ones, and a file that holds all families.
PREAMBLE = """
    import os, signal, sys, time
    from pathlib import Path
    from toktier.artifacts.cache import ArtifactCache
    from toktier.artifacts.import_paths import import_path
    from toktier.artifacts.pins import parse_pins
    from toktier.config import Config, resolve_settings
    pins = parse_pins(Path(sys.argv[1]).read_bytes())
    source, homes = Path(sys.argv[2]), Path(sys.argv[3])
"""


@pytest.fixture
def material(tmp_path: Path) -> tuple[Path, Path]:
    """A table of pins, and a directory that holds all its files."""
    source = tmp_path / "source"
    source.mkdir()
    families = {}
    for index in range(FAMILIES):
        data = tokenizer_bytes(index, 120_000 + index)
        (source / f"{index}.json").write_bytes(data)
        families[f"f{index}"] = {
            "repo_id": f"org/F{index}", "revision": f"{index}" * 40, "files": {"tokenizer.json": pin(data)},
        }  # fmt: skip
    document = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "families": families}
    document["root_digest"] = root_digest(document)
    table = tmp_path / "pins.json"
    table.write_text(json.dumps(document))
    return table, source


def child(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(PREAMBLE) + textwrap.dedent(code), *map(str, arguments)]


@pytest.mark.ci
def test_eight_processes_import_fifty_times_each(material: tuple[Path, Path], tmp_path: Path) -> None:
    code = """
        for turn in range(50):
            settings = resolve_settings(Config(home=homes / str(turn)), environ={})
            report = import_path(source, settings, pins=pins)
            assert len(report.imported) == 4, report
    """
    homes = tmp_path / "homes"
    running = [subprocess.Popen(child(code, *material, homes), cwd=ROOT, stderr=subprocess.PIPE) for _ in range(8)]
    answers = [process.communicate(timeout=1200)[1] for process in running]
    assert [process.returncode for process in running] == [0] * 8, answers
    for turn in range(50):
        root = homes / str(turn) / "cache" / "artifacts"
        blobs = [p for p in (root / "blobs").rglob("*") if p.is_file()]
        assert len(blobs) == FAMILIES
        assert not list(root.rglob("*.lock"))
        assert not list(root.rglob(".tmp*"))
        assert not (root / "quarantine").exists()


@pytest.mark.ci
@pytest.mark.unsanitized
def test_two_hundred_kills_leave_the_old_or_the_new(material: tuple[Path, Path], tmp_path: Path) -> None:
    code = """
        import random
        chance = random.Random(7)
        settings = resolve_settings(Config(home=homes), environ={})
        cache = ArtifactCache.of(settings)
        files = [family.tokenizer for family in pins.families.values()]

        def work():
            while True:
                import_path(source, settings, pins=pins)
                for file in files:
                    if os.urandom(1)[0] % 2:
                        cache.remove(file)
                    else:
                        cache.blob_path(file.sha256).write_bytes(b"damaged")

        begun = time.monotonic()
        import_path(source, settings, pins=pins)
        span = time.monotonic() - begun  # of one import here: kills must fall into it on a slow host too

        statuses = []
        for turn in range(200):
            pid = os.fork()
            if pid == 0:
                try:
                    work()
                finally:
                    os._exit(1)
            time.sleep(chance.uniform(0.001, 0.02 + 2 * span))
            os.kill(pid, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL, "the child had failed"
            for file in files:
                state = cache.inspect(file)
                if state.status == "damaged":
                    assert state.path.read_bytes() in (b"", b"damaged"), f"torn in turn {turn}"
                statuses.append(state.status)
        report = import_path(source, settings, pins=pins)
        assert all(cache.inspect(file).status == "ok" for file in files)
        print(sorted(set(statuses)), len(list(cache.root.rglob(".tmp*"))) > 0)
        for path in cache.root.rglob(".tmp*"):
            os.utime(path, (time.time() - 10_000,) * 2)
        cache.remove(files[0])
        import_path(source, settings, pins=pins)
        print(len(list(cache.root.rglob(".tmp*"))))
    """
    done = subprocess.run(child(code, *material, tmp_path / "home"), cwd=ROOT, capture_output=True, text=True,
                          timeout=1800)  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, left = done.stdout.strip().splitlines()
    assert first == "['damaged', 'missing', 'ok'] True", "no kill fell into a write: the test saw nothing"
    assert left == "0"


@pytest.mark.skipif(not can_unshare("--mount"), reason="needs the right to mount a small file system")
@pytest.mark.parametrize("reserve", [True, False])
def test_a_full_disk_is_told_and_leaves_what_was_there(
    material: tuple[Path, Path], tmp_path: Path, reserve: bool
) -> None:
    code = """
        from toktier.artifacts import cache as module
        from toktier.errors import EnvironmentFault
        if sys.argv[4] == "False":
            module.require_space = lambda *arguments: None  # the forecast is blind: the write itself meets the end
        settings = resolve_settings(Config(home=homes), environ={})
        try:
            # Without the forecast the first files fit: the report then says which were refused.
            faults = [error for _, _, error in import_path(source, settings, pins=pins).refused]
        except EnvironmentFault as error:
            faults = [error]
        for fault in faults[:1]:
            print(fault.exit_code, fault.details["errno"], fault.details["needed_bytes"] > 100_000,
                  fault.details["available_bytes"] < 5_000_000)
        cache = ArtifactCache.of(settings)
        assert {cache.inspect(f.tokenizer).status for f in pins.families.values()} <= {"ok", "missing"}
        assert not list(homes.rglob(".tmp*")) and not list(homes.rglob("*.lock"))
    """
    home = tmp_path / "home"
    home.mkdir()
    command = small_disk(home, "400k", *child(code, *material, home, reserve))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["7", "ENOSPC", "True", "True"]


@pytest.mark.parametrize("name", ["with blank", "日本語", "it's", "größe\n"])
def test_odd_paths(world: World, tmp_path: Path, name: str) -> None:
    file = world.pins.families["alpha"].tokenizer
    cache = ArtifactCache(tmp_path / name / "cache")
    assert cache.store(file, world.alpha)
    assert cache.state(file).status == "ok"
    with cache.lock("x"):
        pass


def test_parts_that_nobody_goes_on_with_are_removed_after_a_week(world: World) -> None:
    parts = world.cache.root / "parts"
    parts.mkdir(parents=True)
    for name, days in (("old.part", 8), ("young.part", 6)):
        (parts / name).write_bytes(b"half")
        os.utime(parts / name, (time.time() - days * 86_400,) * 2)
    world.cache.store(world.pins.families["alpha"].tokenizer, world.alpha)
    assert [p.name for p in parts.iterdir()] == ["young.part"]
