"""The container of a program: what is written is read back; what is damaged anywhere is refused."""

from __future__ import annotations

import hashlib
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import tokenizer_maker as maker
from toktier.errors import ExitCode, ProgramCorrupt
from toktier.program.compile import compile_tokenizer
from toktier.program.file import read_program, write_program
from toktier.program.layout import ALIGNMENT, FORMAT_VERSION, HEADER_SIZE, SECTIONS
from toktier.program.meta import read_meta

ARTIFACT, FINGERPRINT = "ab" * 32, "cd" * 32


@pytest.fixture(scope="module")
def image() -> bytes:
    return compile_tokenizer(maker.encoded(maker.minimal()))


def resealed(image: bytearray) -> bytes:
    """With a digest that holds: what a careful forger would write."""
    image[24:56] = bytes(32)
    image[24:56] = hashlib.sha256(image).digest()
    return bytes(image)


@given(st.dictionaries(st.sampled_from(sorted(SECTIONS)), st.binary(max_size=40)))
@settings(deadline=None)
def test_law_sections_are_read_back(parts: dict[str, bytes]) -> None:
    sections = {tag: data + bytes(-len(data) % SECTIONS[tag]) for tag, data in parts.items()}
    kept = {tag: data for tag, data in sections.items() if data}
    image = write_program(sections, ARTIFACT, FINGERPRINT)
    if not kept:
        with pytest.raises(ProgramCorrupt):
            read_program(image)
        return
    program = read_program(image)
    assert (program.artifact_sha256, program.fingerprint) == (ARTIFACT, FINGERPRINT)
    assert {tag: bytes(program.section(tag)) for tag in SECTIONS} == {tag: kept.get(tag, b"") for tag in SECTIONS}
    assert all(offset % ALIGNMENT == 0 for offset, _ in program.places.values())


def test_every_truncation_is_refused(image: bytes) -> None:
    lengths = {*range(600), *range(0, len(image), 997), len(image) - 1}
    for length in lengths:
        with pytest.raises(ProgramCorrupt):
            read_program(image[:length])
    with pytest.raises(ProgramCorrupt):
        read_program(image + b"\0")


def test_every_flipped_bit_is_refused(image: bytes) -> None:
    rng = random.Random(4)
    places = [*range(HEADER_SIZE + 200), *rng.sample(range(len(image)), 400)]
    for place in places:
        damaged = bytearray(image)
        damaged[place] ^= 1 << rng.randrange(8)
        with pytest.raises(ProgramCorrupt) as caught:
            read_program(bytes(damaged))
        assert caught.value.exit_code is ExitCode.INTEGRITY


FORGERIES = {
    "another magic": (0, b"X"),
    "another version": (8, struct.pack("<I", FORMAT_VERSION + 1)),
    "no sections": (12, struct.pack("<I", 0)),
    "too many sections": (12, struct.pack("<I", 65)),
    "another size": (16, struct.pack("<Q", 5)),
    "a tail that is not zero": (120, b"\1"),
    "an unknown tag": (128, b"ZZZZ"),
    "another element size": (132, struct.pack("<I", 3)),
    "an offset out of line": (136, struct.pack("<Q", 65)),
    "an offset in the header": (136, struct.pack("<Q", 0)),
    "an offset beyond the end": (136, struct.pack("<Q", 1 << 40)),
    "an offset near 2**64": (136, struct.pack("<Q", (1 << 64) - 64)),
    "a length beyond the end": (144, struct.pack("<Q", 1 << 40)),
    "a length of half an element": (144, struct.pack("<Q", 2)),
    "an entry that is not zero": (152, b"\1"),
    "a tag twice": (160, b"CONF"),
    "overlapping sections": (168, struct.pack("<Q", 0)),
}


@pytest.mark.parametrize("case", FORGERIES)
def test_forged_headers_are_refused_whatever_their_digest(image: bytes, case: str) -> None:
    place, data = FORGERIES[case]
    forged = bytearray(image)
    forged[place : place + len(data)] = data
    with pytest.raises(ProgramCorrupt):
        read_program(resealed(forged))
    with pytest.raises(ProgramCorrupt):
        read_program(bytes(forged), verify_digest=False)


@given(st.binary(max_size=400))
def test_law_other_bytes_are_refused(data: bytes) -> None:
    for forged in (data, b"TTPROGRM" + data):
        with pytest.raises(ProgramCorrupt):
            read_program(forged)


def test_meta_of_another_version_is_refused() -> None:
    for section in (b"", b"[]", b"{}", b"\xff", b'{"schema":"toktier.program","schema_version":2}', b"[" * 100_000):
        with pytest.raises(ProgramCorrupt):
            read_meta(section)


def test_meta_says_what_was_compiled(image: bytes) -> None:
    meta = read_meta(read_program(image).section("META"))
    assert meta["artifact"]["sha256"] == read_program(image).artifact_sha256
    assert meta["model"]["vocabulary"] == 7
    assert meta["model"]["merges_written"] == 3
    assert meta["model"]["alphabet"] == "characters"
    assert meta["decode"] == "native"
    assert meta["boundary"] is None
