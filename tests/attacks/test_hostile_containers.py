"""Archives and directories made to end an import with anything but one integrity error, or to make it endless."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import struct
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.artifacts.conftest import World, world  # noqa: F401
from tests.artifacts.test_containers import tar_bytes, zip_bytes
from toktier.artifacts import containers
from toktier.artifacts.containers import MAX_DEPTH, candidates
from toktier.artifacts.import_paths import identify, import_path
from toktier.errors import ArtifactNotFound, BundleInvalid, EnvironmentFault, ToktierError

DATA = b'{"model": 1}' * 1000


def zip_of(data: bytes, method: int = zipfile.ZIP_DEFLATED, name: str = "pkg/tokenizer.json") -> bytearray:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr(name, data)
    return bytearray(buffer.getvalue())


def with_a_name_that_is_no_utf8() -> bytes:
    archive = zip_of(DATA, name="é.json")  # not ASCII: the flag is set
    return bytes(archive).replace("é".encode(), b"\xff\xfe")


def with_a_name_that_is_no_utf8_in_the_local_header() -> bytes:
    return bytes(zip_of(DATA, name="é.json")).replace("é".encode(), b"\xff\xfe", 1)


def with_a_corrupt_body(method: int) -> bytes:
    archive = zip_of(os.urandom(5000), method)
    start = 30 + len("pkg/tokenizer.json")
    archive[start + 40 : start + 400] = bytes(360)
    return bytes(archive)


def with_corrupt_lzma_properties() -> bytes:
    archive = zip_of(DATA, zipfile.ZIP_LZMA)
    start = 30 + len("pkg/tokenizer.json")
    archive[start + 4 : start + 9] = b"\xff" * 5
    return bytes(archive)


def with_directory_at(offset: int) -> bytes:
    archive = zip_of(DATA)
    end = archive.rfind(b"PK\x05\x06")
    archive[end + 16 : end + 20] = offset.to_bytes(4, "little")
    return bytes(archive)


def with_directory_size(size: int) -> bytes:
    archive = zip_of(DATA)
    end = archive.rfind(b"PK\x05\x06")
    archive[end + 12 : end + 16] = size.to_bytes(4, "little")
    return bytes(archive)


BROKEN = {
    "name": with_a_name_that_is_no_utf8,
    "local name": with_a_name_that_is_no_utf8_in_the_local_header,
    "deflate": lambda: with_a_corrupt_body(zipfile.ZIP_DEFLATED),
    "bz2": lambda: with_a_corrupt_body(zipfile.ZIP_BZIP2),
    "lzma": lambda: with_a_corrupt_body(zipfile.ZIP_LZMA),
    "lzma properties": with_corrupt_lzma_properties,
    "cut": lambda: bytes(zip_of(DATA))[:-40],
    "directory offset": lambda: with_directory_at(0xFFFFFF00),
    "directory elsewhere": lambda: with_directory_at(7),
    "directory size": lambda: with_directory_size(3_000_000),
}


def contents(path: Path) -> list[bytes | None]:
    return [c.read(1 << 20) for c in candidates(path)]


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_zip_is_an_integrity_error_that_names_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "p.whl"
    path.write_bytes(BROKEN[kind]())
    with pytest.raises(BundleInvalid, match="is damaged") as caught:
        contents(path)
    assert caught.value.exit_code == 5
    assert str(path) in caught.value.message


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_any_flipped_byte_of_a_zip_is_an_integrity_error_or_harmless(tmp_path: Path, method: int) -> None:
    whole = zip_of(DATA, method)
    path = tmp_path / "p.whl"
    refused = 0
    for at in range(len(whole)):
        for value in (0x00, 0xFF, whole[at] ^ 0x08):
            broken = bytearray(whole)
            broken[at] = value
            path.write_bytes(broken)
            try:
                contents(path)
            except ToktierError as error:
                assert error.exit_code == 5, (at, value, error)  # noqa: PT017
                refused += 1
    assert refused > 100


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_archive_in_a_directory_is_noted_and_the_rest_is_taken(
    world: World,  # noqa: F811
    tmp_path: Path,
    kind: str,
) -> None:
    source = tmp_path / "s"
    source.mkdir()
    (source / "a.whl").write_bytes(BROKEN[kind]())
    (source / "b.tar").write_bytes(tar_bytes("x", world.alpha))
    with pytest.MonkeyPatch.context() as patch:
        # Every member is worth reading: the damage of some shows only then.
        patch.setattr(world.pins, "sizes", frozenset({len(DATA), 5000, len(world.alpha)}))
        report = import_path(source, world.settings, pins=world.pins)
    assert [(i.file.family, i.outcome) for i in report.imported] == [("alpha", "stored")]
    assert [type(e) for e in report.passed_over] == [BundleInvalid]
    assert str(source / "a.whl") in report.passed_over[0].message


def test_a_directory_of_damage_alone_says_what_was_not_readable(world: World, tmp_path: Path) -> None:  # noqa: F811
    source = tmp_path / "s"
    source.mkdir()
    (source / "a.whl").write_bytes(with_a_name_that_is_no_utf8())
    with pytest.raises(ArtifactNotFound, match=r"1 not readable: .*a\.whl .* is damaged"):
        import_path(source, world.settings, pins=world.pins)


EVIL = "\x1b]0;owned\x07\r\n\u202e" + "x" * 5000


@pytest.mark.parametrize("make", [lambda data: tar_bytes(EVIL, data), lambda data: bytes(zip_of(data, name=EVIL))])
def test_names_of_members_are_escaped_and_cut(world: World, tmp_path: Path, make: object) -> None:  # noqa: F811
    path = tmp_path / "a"
    path.write_bytes(make(world.alpha))  # type: ignore[operator]
    ((_, where),), error = identify(path, world.pins)
    assert error is None
    assert where.isprintable()
    assert where.startswith(f"{path}!\\x1b]0;owned\\x07\\r\\n\\u202exxx")
    assert len(where) < len(str(path)) + 125
    path.write_bytes(make(world.alpha[:-1] + b"!"))  # type: ignore[operator]
    _, error = identify(path, world.pins)
    assert error is not None
    assert error.message.isprintable()


@pytest.mark.parametrize("name", [b"\xff\xfe.json", b"a\x1b[2J\nb.json"])
def test_a_path_that_is_not_utf8_is_imported_and_noted(world: World, tmp_path: Path, name: bytes) -> None:  # noqa: F811
    path = tmp_path / os.fsdecode(name)
    path.write_bytes(world.alpha)
    report = import_path(path, world.settings, pins=world.pins)
    assert [i.outcome for i in report.imported] == ["stored"]
    note = world.cache.read_note("alpha")
    assert note is not None
    assert note["source"].isprintable()
    path.write_bytes(b"{}")
    _, error = identify(path, world.pins)
    assert error is not None
    assert error.message.isprintable()
    path.write_bytes(with_a_corrupt_body(zipfile.ZIP_BZIP2))
    with pytest.raises(BundleInvalid) as caught:
        contents(path)
    assert caught.value.message.isprintable()
    assert caught.value.details["file"].isprintable()


def test_a_very_deep_directory_ends(tmp_path: Path) -> None:
    (tmp_path / "beside").write_bytes(DATA)
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        for _ in range(1500):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(before)
    shallow = tmp_path / "d" / "d"
    (shallow / "tokenizer.json").write_bytes(b"shallow")
    passed_over: list[ToktierError] = []
    try:
        found = [c.read(1 << 20) for c in candidates(tmp_path, passed_over)]
    finally:  # shutil.rmtree, with which pytest would, recurses
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)
    assert found == [DATA, b"shallow"]
    assert [type(e) for e in passed_over] == [EnvironmentFault]
    assert f"more than {MAX_DEPTH} directories deep" in passed_over[0].message


def overlapping(data: bytes, count: int) -> bytes:
    """One member, and `count` entries of the directory that point at it."""
    single = bytes(zip_of(data))
    start, end = single.index(b"PK\x01\x02"), single.index(b"PK\x05\x06")
    entries = single[start:end] * count
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(entries), start, 0)
    return single[:start] + entries + tail


def test_what_is_read_out_of_an_archive_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "many.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(60):
            archive.writestr(f"{number}/tokenizer.json", DATA)
    monkeypatch.setattr(containers, "MAX_READ", 50 * len(DATA))
    monkeypatch.setattr(containers, "MAX_READ_RATIO", 0)
    members = candidates(path)
    assert [next(members).read(1 << 20) for _ in range(50)] == [DATA] * 50
    one_more = next(members)
    with pytest.raises(BundleInvalid, match="more would be read out of it"):
        one_more.read(1 << 20)


def test_members_that_share_their_bytes_are_not_hashed_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the bound above, or at the first of them: zipfile refuses overlaps from Python 3.11.9 and 3.12.3 on, and in
    what distributions mended before."""
    path = tmp_path / "overlapping.whl"
    path.write_bytes(overlapping(DATA, 5000))
    monkeypatch.setattr(containers, "MAX_READ", 50 * len(DATA))
    monkeypatch.setattr(containers, "MAX_READ_RATIO", 0)
    read: list[bytes] = []
    with pytest.raises(BundleInvalid, match=r"more would be read out of it|Overlapped entries"):
        read.extend(member.read(1 << 20) for member in candidates(path))
    assert read == [DATA] * len(read)
    assert len(read) <= 50


def test_a_zip64_record_does_not_lift_the_bound_of_the_directory(tmp_path: Path) -> None:
    whole = bytes(zip_of(DATA))
    start, end = whole.index(b"PK\x01\x02"), whole.index(b"PK\x05\x06")
    directory = whole[start:end] * (20_000_000 // (end - start))
    record_at = start + len(directory)
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, len(directory), start)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, record_at, 1)
    path = tmp_path / "z"
    for stated in (0xFFFFFFFF, 1):
        tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, stated, start, 0)
        path.write_bytes(whole[:start] + directory + record + locator + tail)
        with pytest.raises(BundleInvalid, match="larger than any wheel needs"):
            contents(path)


def test_the_decompressors_exist_here() -> None:
    """The rows above would pass for the wrong reason in a Python without them."""
    assert bz2.decompress(bz2.compress(DATA)) == lzma.decompress(lzma.compress(DATA)) == DATA
    assert zip_bytes()


def test_what_is_read_out_of_a_compressed_tar_is_bounded_by_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = tar_bytes("x", bytes(100_000))[: 512 + 100_352]  # padded to blocks, without the end
    whole = gzip.compress(member * 200 + bytes(1024))
    path = tmp_path / "zeros.tar.gz"
    path.write_bytes(whole)
    monkeypatch.setattr(containers, "MAX_READ", 0)
    read = 0

    def read_all() -> None:
        nonlocal read
        for candidate in candidates(path):
            read += len(candidate.read(1 << 20) or b"")

    with pytest.raises(BundleInvalid, match="more would be read out of it"):
        read_all()
    assert 20 * len(whole) <= read < 20 * len(whole) + 100_000


def test_an_honest_archive_is_read_whole_however_small_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "honest.whl"
    path.write_bytes(zip_of(os.urandom(50_000)))
    monkeypatch.setattr(containers, "MAX_READ", 0)
    assert [len(data or b"") for data in contents(path)] == [50_000]
