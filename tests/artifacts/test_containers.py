"""Every kind of container gives the same candidates; damaged and hostile ones end in one error that names the file."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard

from toktier.artifacts.containers import Candidate, bounded_read, candidates
from toktier.errors import ArtifactNotFound, BundleInvalid, ToktierError

DATA = b'{"model": 1}' * 1000
LIMIT = 1 << 20


def tar_bytes(name: str = "pkg/tokenizer.json", data: bytes = DATA) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
        tar.addfile(tarfile.TarInfo("empty"), io.BytesIO())
    return buffer.getvalue()


def zip_bytes(data: bytes = DATA) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pkg/tokenizer.json", data)
        archive.writestr("pkg/", b"")
    return buffer.getvalue()


KINDS = {
    "bare": DATA,
    "json.gz": gzip.compress(DATA),
    "json.zst": zstandard.compress(DATA),
    "tar": tar_bytes(),
    "tar.gz": gzip.compress(tar_bytes()),
    "tar.zst": zstandard.compress(tar_bytes()),
    "zip": zip_bytes(),
}


def contents(path: Path) -> list[bytes | None]:
    return [c.read(LIMIT) for c in candidates(path)]


def contents_or_error(path: Path) -> list[bytes | None] | ToktierError:
    try:
        return contents(path)
    except ToktierError as error:
        return error


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_file_whatever_it_is_called(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "no-suffix"
    path.write_bytes(KINDS[kind])
    assert DATA in contents(path)


def test_a_directory_gives_files_links_to_files_and_members_of_containers(tmp_path: Path) -> None:
    (tmp_path / "d" / "deep").mkdir(parents=True)
    (tmp_path / "blob").write_bytes(DATA)
    (tmp_path / "d" / "tokenizer.json").symlink_to(tmp_path / "blob")
    (tmp_path / "d" / "deep" / "p.whl").write_bytes(zip_bytes(b"in a wheel"))
    (tmp_path / "d" / "broken.whl").write_bytes(zip_bytes()[:-30])
    (tmp_path / "d" / "weights.bin").write_bytes(tar_bytes(data=b"not opened: no container by its name"))
    (tmp_path / "d" / "loop").symlink_to(tmp_path / "d")
    (tmp_path / "d" / "dangling").symlink_to(tmp_path / "absent")
    os.mkfifo(tmp_path / "d" / "fifo.json")
    found = contents(tmp_path / "d")
    assert found.count(DATA) == 1
    assert found.count(b"in a wheel") == 1
    assert b"not opened: no container by its name" not in found
    assert len(found) == 3


def test_nothing_and_neither_file_nor_directory(tmp_path: Path) -> None:
    with pytest.raises(ArtifactNotFound, match="does not exist"):
        list(candidates(tmp_path / "absent"))
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ArtifactNotFound, match="neither a file nor a directory"):
        list(candidates(tmp_path / "fifo"))


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "bare"])
def test_a_container_cut_anywhere_gives_the_whole_file_or_an_error(tmp_path: Path, kind: str) -> None:
    whole = KINDS[kind]
    path = tmp_path / "cut"
    refused = 0
    for cut in range(8, len(whole) - 1, max(1, len(whole) // 60)):
        path.write_bytes(whole[:cut])
        outcome = contents_or_error(path)
        if isinstance(outcome, ToktierError):
            assert outcome.exit_code == 5
            assert str(path) in outcome.message
            refused += 1
        else:
            # Cut within the padding at the end, or so early that it is a bare file of other content.
            assert all(data in (b"", DATA, whole[:cut]) for data in outcome)
    assert refused > 10


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "bare"])
def test_flipped_bits_never_escape_as_another_exception(tmp_path: Path, kind: str) -> None:
    whole = KINDS[kind]
    path = tmp_path / "flipped"
    for bit in range(0, len(whole) * 8, max(1, len(whole) * 8 // 150)):
        broken = bytearray(whole)
        broken[bit // 8] ^= 1 << bit % 8
        path.write_bytes(broken)
        outcome = contents_or_error(path)
        assert not isinstance(outcome, ToktierError) or outcome.exit_code == 5


def test_a_read_is_bounded_whatever_is_promised() -> None:
    class Endless:
        given = 0

        def read(self, count: int) -> bytes:
            self.given += count
            return b"0" * count

    stream = Endless()
    assert bounded_read(stream, 5_000_000) is None
    assert stream.given == 5_000_001


BOMBS = {
    "gzip": lambda: gzip.compress(bytes(300 << 20), 9),
    "zstd": lambda: zstandard.compress(bytes(300 << 20), 19),
    "zip": lambda: zip_bytes(bytes(300 << 20)),
    "tar.gz": lambda: gzip.compress(tar_bytes(data=bytes(300 << 20)), 9),
}


@pytest.mark.ci
@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_costs_little_memory(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(BOMBS[kind]())
    assert path.stat().st_size < 2 << 20
    code = (
        "import resource, sys\nfrom pathlib import Path\n"
        "from toktier.artifacts.containers import candidates\n"
        "import zstandard\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for c in candidates(Path(sys.argv[1])): assert c.size == 0 or c.read(1 << 20) is None, c\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 32 << 10  # KiB


def test_a_zstd_frame_that_wants_a_huge_window_is_refused(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=28)
    path = tmp_path / "window"
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()  # no size: the window is stated
    path.write_bytes(compressor.compress(bytes(1 << 20)) + compressor.flush())
    with pytest.raises(BundleInvalid, match="is damaged"):
        contents(path)


def test_an_encrypted_or_unknown_zip_member_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "z"
    data = bytearray(zip_bytes())
    central = data.rfind(b"PK\x01\x02", 0, data.rfind(b"PK\x01\x02"))
    data[6] |= 1  # encrypted, in the local header
    data[central + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(BundleInvalid):
        contents(path)


def test_a_zip_with_a_giant_directory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "z"
    data = bytearray(zip_bytes())
    end = data.rfind(b"PK\x05\x06")
    data[end + 12 : end + 16] = (1 << 30).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(BundleInvalid, match="larger than any wheel needs"):
        contents(path)


def test_candidates_know_where_they_lie(tmp_path: Path) -> None:
    plain, wheel = tmp_path / "a.json", tmp_path / "b.whl"
    plain.write_bytes(DATA)
    wheel.write_bytes(zip_bytes())
    (first,) = candidates(plain)
    (second,) = candidates(wheel)
    assert isinstance(first, Candidate)
    assert (first.path, first.where, first.size) == (plain, str(plain), len(DATA))
    assert (second.path, second.where, second.size) == (None, f"{wheel}!pkg/tokenizer.json", len(DATA))
