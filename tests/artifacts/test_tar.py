"""The tar reader: what tarfile writes, it reads; what is hostile ends in one error, in bounded memory."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toktier.artifacts.tar import MAX_EXTENSION, TarReader, looks_like_tar
from toktier.errors import BundleInvalid

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def archive(members: list[tuple[str, bytes]], form: int = tarfile.USTAR_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def read(data: bytes) -> list[tuple[str, bytes]]:
    return [(m.name, b"".join(iter(lambda m=m: m.body.read(1000), b""))) for m in TarReader(io.BytesIO(data), "t.tar")]


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_reads_what_tarfile_writes(form: int) -> None:
    long = "d/" * 60 + "name"
    members = [("a", b""), ("b/c", b"x" * 512), (long, b"y" * 513), ("d", b"z" * 70_000)]
    if form != tarfile.USTAR_FORMAT:
        members.append(("e" * 300 + "é", b"long"))
    assert read(archive(members, form)) == members


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=200),
                       st.binary(max_size=2000)), max_size=6),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)  # fmt: skip
def test_law_same_members_as_tarfile(members: list[tuple[str, bytes]], form: int) -> None:
    assert read(archive(members, form)) == members


def test_skipped_bodies_do_not_disturb_the_next_member() -> None:
    data = archive([("a", b"1" * 5000), ("b", b"2" * 3000)])
    names = []
    for member in TarReader(io.BytesIO(data), "t"):
        member.body.read(10)
        names.append(member.name)
    assert names == ["a", "b"]


def test_everything_but_regular_files_is_passed_over() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for kind in (
            tarfile.SYMTYPE,
            tarfile.LNKTYPE,
            tarfile.CHRTYPE,
            tarfile.BLKTYPE,
            tarfile.FIFOTYPE,
            tarfile.DIRTYPE,
        ):
            info = tarfile.TarInfo(f"k{kind!r}")
            info.type = kind
            info.linkname = "/etc/passwd"
            tar.addfile(info)
        info = tarfile.TarInfo("file")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"abc"))
    assert read(buffer.getvalue()) == [("file", b"abc")]


def test_an_archive_cut_anywhere_is_refused() -> None:
    whole = archive([("a", b"x" * 700), ("b", b"y" * 100)], tarfile.PAX_FORMAT)
    end = len(whole.rstrip(b"\0")) // 512 * 512 + 512  # first of the blocks that end it
    for cut in range(0, end + 512, 37):
        with pytest.raises(BundleInvalid, match="ends early at byte"):
            read(whole[:cut])


def test_a_flipped_header_bit_is_refused() -> None:
    whole = archive([("name", b"x" * 10)])
    for bit in range(0, 345 * 8, 7):
        broken = bytearray(whole)
        broken[bit // 8] ^= 1 << bit % 8
        try:
            assert read(bytes(broken)) == [("name", b"x" * 10)], "a header that lost its checksum was believed"
        except BundleInvalid:
            continue


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=3000))
def test_law_garbage_gives_members_or_one_error(data: bytes) -> None:
    with contextlib.suppress(BundleInvalid):
        read(data)
    looks_like_tar(data[:512])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_law_a_mutated_archive_gives_members_or_one_error(data: st.DataObject) -> None:
    broken = bytearray(archive([("a" * 150, b"x" * 600), ("b", b"y" * 20)], tarfile.PAX_FORMAT))
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BundleInvalid):
        read(bytes(broken))


def header(kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("x")
    info.type = kind
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"])
def test_a_huge_extended_header_is_refused_before_it_is_read(kind: bytes) -> None:
    class Endless(io.RawIOBase):
        given = 0

        def read(self, count: int = -1) -> bytes:
            first = header(kind, 600_000_000) if self.given == 0 else b"0" * count
            self.given += len(first[:count])
            return first[:count]

    stream = Endless()
    with pytest.raises(BundleInvalid, match="extended header of 600,000,000 bytes"):
        list(TarReader(stream, "t"))
    assert stream.given < 2 * MAX_EXTENSION


def test_extended_headers_without_end_are_refused() -> None:
    with pytest.raises(BundleInvalid, match="too many extended headers"):
        read((header(b"x", 0)) * 50)


@pytest.mark.parametrize(
    "record", [b"5 p=x", b"99999999999 path=x\n", b"x path=a\n", b"9 pathaa\n", b"13 size=-100\n", b"0 \n"]
)
def test_damaged_pax_records_are_refused(record: bytes) -> None:
    data = header(b"x", len(record)) + record.ljust(512, b"\0") + header(b"0", 0) + bytes(1024)
    with pytest.raises(BundleInvalid):
        read(data)


def test_a_size_beyond_the_archive_is_refused_without_allocating_it() -> None:
    code = (
        "import io, resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))\n"
        "from toktier.artifacts.tar import TarReader\n"
        "from toktier.artifacts.containers import bounded_read\n"
        "from toktier.errors import BundleInvalid\n"
        "data = sys.stdin.buffer.read()\n"
        "try:\n"
        "    for m in TarReader(io.BytesIO(data), 't'): bounded_read(m.body, m.size)\n"
        "except BundleInvalid: sys.exit(7)\n"
    )
    for size in (8 << 30, 1 << 80):
        block = bytearray(header(b"0", 0))
        block[124:136] = b"\x80" + size.to_bytes(11, "big")
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
        run = subprocess.run([sys.executable, "-c", code], input=bytes(block) + b"x" * 4096, capture_output=True)
        assert run.returncode == 7, run.stderr.decode()
