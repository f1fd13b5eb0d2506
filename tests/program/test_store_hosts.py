"""The cache of programs on hosts that refuse, share or kill: no directory, a full disk, another user's cache, many
processes at once, a writer that dies. Not here: what a cached program must hold to be used (`test_store`).
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support import tokenizer_maker as maker
from tests.support.fill_programs import fill
from toktier import storage
from toktier.errors import EnvironmentFault
from toktier.program import compile as compiling
from toktier.program import store
from toktier.program.store import load_or_compile, program_path


def test_no_cache_directory(artifact: Path, compilations: list[str]) -> None:
    for _ in range(2):
        program, info = load_or_compile(artifact, None)
        assert info.path is None
        assert info.notice is not None
        assert "memory" in info.notice
        assert isinstance(program, bytes)
    assert len(compilations) == 2


def test_a_cache_that_is_a_file(artifact: Path, cache: Path, compilations: list[str]) -> None:
    cache.write_bytes(b"")
    program, info = load_or_compile(artifact, cache)
    assert len(program) > 128
    assert info.path is None
    assert str(cache) in str(info.notice)
    assert len(compilations) == 1


def test_a_full_disk(artifact: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, compilations: list[str]) -> None:
    def full(path: Any, data: Any, mode: int = 0) -> None:
        raise EnvironmentFault(f"cannot write {path}: No space left on device")

    monkeypatch.setattr(storage, "atomic_write", full)
    program, info = load_or_compile(artifact, cache)
    assert len(program) > 128
    assert info.path is None
    assert "No space left" in str(info.notice)
    assert not list(cache.glob("*.lock"))
    assert len(compilations) == 1


def test_a_holder_that_never_lets_go(artifact: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.05)
    storage.make_directory(cache)
    digest = hashlib.sha256(artifact.read_bytes()).hexdigest()
    with storage.FileLock(program_path(cache, digest).with_suffix(".lock")):
        _, info = load_or_compile(artifact, cache)
    assert info.path is None
    assert "waited" in str(info.notice)


@pytest.mark.skipif(os.geteuid() != 0, reason="drops privileges to prove the refusal; needs to start as root")
def test_a_cache_of_another_user() -> None:
    code = """
        import os, sys
        from pathlib import Path
        from toktier.program import compile
        from toktier.program.compiler_identity import compiler_digest
        from toktier.program.store import load_or_compile
        compiler_digest()  # imports codecs, which may lie where only root can read
        os.setgid(65534); os.setuid(65534)
        for cache in map(Path, sys.argv[2:]):
            _, info = load_or_compile(sys.argv[1], cache)
            print(info.from_cache, info.path is None, "Permission denied" in str(info.notice))
        """
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        root.chmod(0o755)
        (root / "t.json").write_bytes(maker.encoded(maker.minimal()))
        (root / "t.json").chmod(0o644)
        fill(root / "t.json", root / "full")
        for path in (root / "full", root / "full" / "sources"):
            path.chmod(0o755)
        for path in (root / "full").glob("*.program"):
            path.chmod(0o644)
        (root / "empty").mkdir(mode=0o755)
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                textwrap.dedent(code),
                str(root / "t.json"),
                str(root / "empty"),
                str(root / "full"),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.stdout.splitlines() == ["False True True", "True False False"], done.stderr


def _load(source: str, cache: str, results: Any) -> None:
    program, info = load_or_compile(source, Path(cache))
    results.put((hashlib.sha256(memoryview(program)).hexdigest(), info.notice))


def test_many_processes_at_once(artifact: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK_SECONDS", 600.0)  # for all of them, which are forks
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [context.Process(target=_load, args=(str(artifact), str(cache), results)) for _ in range(6)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=600) for _ in workers]
    for worker in workers:
        worker.join(600)
        assert worker.exitcode == 0
    assert len(set(found)) == 1
    assert found[0][1] is None
    assert sorted(path.suffix for path in cache.iterdir() if path.is_file()) in (
        [".program"],
        [".program", ".verified"],
    )


def test_a_writer_killed_half_way_leaves_nothing_that_is_believed(artifact: Path, cache: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from toktier import storage
        from toktier.program.store import load_or_compile
        def half(path, data, mode=0o600):
            with storage.atomic_writer(path, mode) as file:
                file.write(bytes(data)[: len(data) // 2])
                file.flush()
                print("half", flush=True)
                sys.stdin.read()
        storage.atomic_write = half
        load_or_compile(sys.argv[1], Path(sys.argv[2]))
        """
    command = [sys.executable, "-c", textwrap.dedent(code), str(artifact), str(cache)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"half\n"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert not list(cache.glob("*.program"))
    program, info = load_or_compile(artifact, cache)
    assert info.path is not None
    assert info.notice is None
    assert bytes(memoryview(program)) == compiling.compile_tokenizer(artifact.read_bytes())
