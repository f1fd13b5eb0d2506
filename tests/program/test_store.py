"""The cache of programs: used when it holds, rebuilt when it does not, never believed, never needed."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import shutil
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import tokenizer_maker as maker
from tests.support.fill_programs import fill
from toktier.errors import ArtifactDamaged, ArtifactNotFound, EnvironmentFault, NotATokenizer, ProgramCorrupt
from toktier.program import store, strict_json
from toktier.program.installation import Identities
from toktier.program.store import load_or_compile, program_path

NOTES = ("sources", "installations")  # directories of digests by stat data


@contextlib.contextmanager
def later(monkeypatch: pytest.MonkeyPatch, seconds: int = 60) -> Iterator[None]:
    """As if `seconds` had passed: ctime cannot be set back."""
    real = time.time_ns
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: real() + seconds * 1_000_000_000)
        yield


def test_compiled_once_and_mapped_after(artifact: Path, cache: Path, compilations: list[str]) -> None:
    first, cold = load_or_compile(artifact, cache)
    second, warm = load_or_compile(artifact, cache)
    assert bytes(memoryview(first)) == bytes(memoryview(second))
    assert len(compilations) == 1
    assert (cold.from_cache, warm.from_cache) == (False, True)
    assert cold.path == warm.path == program_path(cache, cold.artifact_sha256)
    assert cold.notice is warm.notice is None
    assert cold.meta == warm.meta
    assert cold.artifact_sha256 == hashlib.sha256(artifact.read_bytes()).hexdigest() == compilations[0]
    assert memoryview(second).readonly


def test_bytes_and_path_are_one_artifact(artifact: Path, cache: Path, compilations: list[str]) -> None:
    load_or_compile(artifact.read_bytes(), cache)
    _, info = load_or_compile(artifact, cache)
    assert info.from_cache
    assert len(compilations) == 1


def test_files_are_for_their_owner(artifact: Path, cache: Path) -> None:
    _, info = load_or_compile(artifact, cache)
    assert info.path is not None
    assert stat.S_IMODE(info.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert not list(cache.glob("*.lock"))


def test_a_settled_file_is_trusted_by_its_stat(
    artifact: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, compilations: list[str]
) -> None:
    begun = time.time_ns()
    with monkeypatch.context() as patch:  # the program stays young, however busy the host is
        patch.setattr(time, "time_ns", lambda: begun)
        load_or_compile(artifact, cache)
        _, young = load_or_compile(artifact, cache)
    assert not young.trusted
    with later(monkeypatch):
        _, verified = load_or_compile(artifact, cache)
        assert not verified.trusted, "verified once more, and recorded"
        read_bytes: list[int] = []
        monkeypatch.setattr(hashlib, "sha256", _counting(hashlib.sha256, read_bytes))
        _, trusted = load_or_compile(artifact, cache)
        assert trusted.trusted
        assert sum(read_bytes) < 10_000, "neither the artifact nor the program is hashed"
    assert len(compilations) == 1


def _counting(sha256: Any, sizes: list[int]) -> Any:
    def counted(data: Any = b"") -> Any:
        sizes.append(len(data))
        return sha256(data)

    return counted


CHANGES = {
    "a flipped bit": lambda data: data[:500] + bytes([data[500] ^ 1]) + data[501:],
    "cut": lambda data: data[:-1],
    "empty": lambda data: b"",
    "longer": lambda data: data + b"\0",
    "foreign": lambda data: b"not a program at all, but some other file" * 100,
    "header only": lambda data: data[:128],
}


@pytest.mark.parametrize("case", CHANGES)
@pytest.mark.parametrize("trusted", [False, True])
def test_what_does_not_hold_is_rebuilt(
    artifact: Path, cache: Path, case: str, trusted: bool, monkeypatch: pytest.MonkeyPatch, compilations: list[str]
) -> None:
    good, info = load_or_compile(artifact, cache)
    expected = bytes(memoryview(good))
    assert info.path is not None
    with later(monkeypatch):
        if trusted:
            load_or_compile(artifact, cache)
            assert load_or_compile(artifact, cache)[1].trusted
        info.path.write_bytes(CHANGES[case](expected))
        again, rebuilt = load_or_compile(artifact, cache)
    assert bytes(memoryview(again)) == expected
    assert not rebuilt.from_cache
    assert info.path.read_bytes() == expected
    assert len(compilations) == 2


def test_a_program_of_another_artifact_is_rebuilt(artifact: Path, cache: Path, compilations: list[str]) -> None:
    other = maker.encoded(maker.changed(maker.minimal(), model__ignore_merges=True))
    _, info = load_or_compile(artifact, cache)
    _, foreign = load_or_compile(other, cache)
    assert info.path is not None
    assert foreign.path is not None
    shutil.copyfile(foreign.path, info.path)
    _, again = load_or_compile(artifact, cache)
    assert not again.from_cache
    assert again.artifact_sha256 == info.artifact_sha256
    assert len(compilations) == 3


def test_a_program_that_the_engine_refuses_is_rebuilt(artifact: Path, cache: Path, compilations: list[str]) -> None:
    load_or_compile(artifact, cache)
    refusals = [ProgramCorrupt("a table is out of range"), ValueError("a table is out of range")]
    for number, refusal in enumerate(refusals, 2):

        def opener(buffer: Any, number: int = number, refusal: Exception = refusal) -> str:
            if len(compilations) < number:
                raise refusal
            return f"opened {len(buffer)} bytes"

        opened, info = load_or_compile(artifact, cache, opener=opener)
        assert opened.startswith("opened")
        assert not info.from_cache
    assert len(compilations) == 3


def test_a_refusal_of_a_fresh_program_is_not_hidden(artifact: Path, cache: Path) -> None:
    def opener(buffer: Any) -> Any:
        raise ValueError("never")

    with pytest.raises(ValueError, match="never"):
        load_or_compile(artifact, cache, opener=opener)


def test_a_changed_artifact_is_another_one(
    artifact: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, compilations: list[str]
) -> None:
    with later(monkeypatch):
        _, before = load_or_compile(artifact, cache)
        load_or_compile(artifact, cache)
        status = artifact.stat()
        data = artifact.read_bytes().replace(b'"d": 3', b'"e": 3')
        artifact.write_bytes(data)
        os.utime(artifact, ns=(status.st_atime_ns, status.st_mtime_ns))
        _, after = load_or_compile(artifact, cache)
    assert after.artifact_sha256 == hashlib.sha256(data).hexdigest() != before.artifact_sha256
    assert len(compilations) == 2


def test_a_source_that_others_can_write_is_hashed_every_time(
    artifact: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact.chmod(0o666)
    with later(monkeypatch):
        for _ in range(3):
            load_or_compile(artifact, cache)
    assert not list((cache / "sources").iterdir())


@pytest.mark.parametrize("mode", [0o660, 0o606])
def test_a_program_that_others_can_write_is_rebuilt(
    artifact: Path, cache: Path, mode: int, compilations: list[str]
) -> None:
    _, info = load_or_compile(artifact, cache)
    assert info.path is not None
    info.path.chmod(mode)
    assert not load_or_compile(artifact, cache)[1].from_cache
    assert len(compilations) == 2
    assert info.path.stat().st_mode & 0o777 == 0o600
    assert load_or_compile(artifact, cache)[1].from_cache


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user; needs to start as root")
def test_a_program_of_another_user_is_rebuilt(artifact: Path, cache: Path, compilations: list[str]) -> None:
    _, info = load_or_compile(artifact, cache)
    assert info.path is not None
    os.chown(info.path, 65534, 65534)
    assert not load_or_compile(artifact, cache)[1].from_cache
    assert len(compilations) == 2
    assert info.path.stat().st_uid == os.geteuid()


def test_a_fifo_in_the_place_of_a_program_holds_nobody(artifact: Path, cache: Path, compilations: list[str]) -> None:
    _, info = load_or_compile(artifact, cache)
    assert info.path is not None
    info.path.unlink()
    os.mkfifo(info.path)
    assert not load_or_compile(artifact, cache)[1].from_cache
    assert len(compilations) == 2
    assert load_or_compile(artifact, cache)[1].from_cache


@pytest.mark.parametrize("hint", [b"", b"[]", b"{}", b"\xff", b'{"identity":[],"sha256":"x"}', b"[" * 3000])
def test_a_broken_hint_is_no_hint(artifact: Path, cache: Path, hint: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with later(monkeypatch):
        load_or_compile(artifact, cache)
        load_or_compile(artifact, cache)
        hints = [*cache.glob("*.verified"), *(cache / "sources").iterdir()]
        assert len(hints) == 2
        for path in hints:
            path.write_bytes(hint)
        _, info = load_or_compile(artifact, cache)
        assert info.from_cache
        assert not info.trusted


def test_another_compiler_makes_another_program(
    artifact: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, compilations: list[str]
) -> None:
    for version in range(7):
        other = Identities(f"{version:x}".ljust(64, "0"), "0" * 64)
        monkeypatch.setattr(store, "identities", lambda hints, other=other: other)
        assert not load_or_compile(artifact, cache)[1].from_cache
    assert len(compilations) == 7
    assert len(list(cache.glob("*.program"))) == store.KEPT_PER_ARTIFACT


def planted(cache: Path, count: int, size: int = 10) -> list[Path]:
    """Programs of other artifacts, the least recently used first, with hints."""
    cache.mkdir(exist_ok=True)
    paths = []
    for number in range(count):
        path = cache / f"{number:064x}.{'0' * 32}.v1.program"
        with open(path, "wb") as file:
            file.truncate(size)  # takes no room
        path.with_suffix(".verified").write_bytes(b"{}")
        for each in (path, path.with_suffix(".verified")):
            os.utime(each, (10_000 + number, 10_000 + number))
        paths.append(path)
    return paths


def test_of_all_programs_the_least_recently_used_are_removed(artifact: Path, cache: Path) -> None:
    paths = planted(cache, store.KEPT_FILES + 5)
    os.utime(paths[0].with_suffix(".verified"))  # used a moment ago
    with open(paths[1], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        os.utime(paths[1], (10_001, 10_001))  # mapping is a use
        info = load_or_compile(artifact, cache)[1]
        assert not paths[1].exists()
        assert mapped[:] == bytes(10)  # who has it keeps it
    assert info.path is not None
    left = set(cache.glob("*.program"))
    assert left == {info.path, paths[0], *paths[-(store.KEPT_FILES - 2) :]}
    assert {path.with_suffix(".program") for path in cache.glob("*.verified")} <= left


def test_all_programs_together_are_bounded_in_bytes(artifact: Path, cache: Path) -> None:
    paths = planted(cache, 6, size=store.KEPT_BYTES // 4)
    info = load_or_compile(artifact, cache)[1]
    assert info.path is not None
    assert set(cache.glob("*.program")) == {info.path, *paths[-3:]}


def test_the_use_of_a_program_is_noted_once_a_day(artifact: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = load_or_compile(artifact, cache)[1].path
    assert path is not None
    hint = path.with_suffix(".verified")
    with later(monkeypatch):
        load_or_compile(artifact, cache)  # hashes, and writes the hint
        os.utime(hint, (10_000, 10_000))
        assert load_or_compile(artifact, cache)[1].trusted
        noted = hint.stat().st_mtime
        assert noted > 10_000
        recent = time.time() - 3600
        os.utime(hint, (recent, recent))
        load_or_compile(artifact, cache)
        assert hint.stat().st_mtime == pytest.approx(recent)


def test_sources_that_are_no_files(tmp_path: Path, cache: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "absent.json", tmp_path, tmp_path / "pipe", tmp_path / "absent" / "x.json"):
        with pytest.raises((ArtifactNotFound, EnvironmentFault)) as caught:
            load_or_compile(path, cache)
        assert str(path) in caught.value.message
    assert not list(cache.glob("*"))


def test_bad_sources_leave_nothing(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bad.json"
    for data, error in ((b"", ArtifactDamaged), (b"{", ArtifactDamaged), (b"{}", NotATokenizer)):
        path.write_bytes(data)
        with pytest.raises(error, match=r"bad\.json"):
            load_or_compile(path, cache)
    monkeypatch.setattr(strict_json, "MAX_BYTES", 10)
    path.write_bytes(b" " * 11)
    with pytest.raises(NotATokenizer, match=r"no tokenizer\.json has more"):
        load_or_compile(path, cache)
    assert [entry for entry in cache.rglob("*") if entry.is_file() and entry.parent.name not in NOTES] == []


def test_a_warm_load_imports_no_compiler(artifact: Path, cache: Path) -> None:
    fill(artifact, cache)
    code = """
        import sys
        from pathlib import Path
        from toktier.program.store import load_or_compile
        _, info = load_or_compile(sys.argv[1], Path(sys.argv[2]))
        assert info.from_cache
        loaded = {name.rpartition(".")[2] for name in sys.modules if name.startswith("toktier.program.")}
        print(sorted(loaded))
        """
    command = [sys.executable, "-c", textwrap.dedent(code), str(artifact), str(cache)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    names = [
        "compiler_identity",
        "engine_identity",
        "file",
        "installation",
        "json_fields",
        "layout",
        "meta",
        "store",
        "strict_json",
        "trust",
    ]
    assert set(eval(done.stdout)) <= set(names)


def test_digests_of_paths_are_bounded(artifact: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEPT_HINTS", 8)
    for turn in range(20):
        copy = artifact.with_name(f"copy-{turn}.json")
        copy.write_bytes(artifact.read_bytes())
        load_or_compile(copy, cache)
        assert len(list((cache / "sources").iterdir())) <= 8


def test_a_note_of_a_program_that_is_gone_goes_too(artifact: Path, cache: Path) -> None:
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    orphan = cache / f"{'0' * 64}.{'0' * 32}.v1.verified"
    orphan.write_text("{}")
    load_or_compile(artifact, cache)
    assert not orphan.exists()
