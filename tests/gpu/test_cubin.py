"""What a cubin holds, and that no bytes whatever do more than be refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.kernels import make_cubin
from toktier.gpu import cubin
from toktier.gpu.elf import Elf, NotElf

GOOD = make_cubin("sm_90")
SECTIONS_AT = struct.unpack_from("<Q", GOOD, 40)[0]


def test_the_facts_of_a_cubin() -> None:
    facts = cubin.read_cubin(make_cubin("sm_120", abi=[1, 2, 3], kernels=["b", "a"], compiler="12.9.86"))
    assert facts == cubin.CubinFacts(
        (1, 2, 3), ("a", "b"), "sm_120", "12.9.86", "Cuda compilation tools, release 12.9, V12.9.86"
    )


def test_what_the_native_module_expects_is_what_the_header_says() -> None:
    assert cubin.expected_abi()[0] == 0x54544B31
    assert len(cubin.expected_abi()) == 14
    assert cubin.expected_abi()[11] == len(cubin.expected_kernels())
    assert "tt_facts" in cubin.expected_kernels()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (make_cubin("sm_80"), "it is for sm_80"),
        (make_cubin(abi=[*cubin.expected_abi()[:-1], 99]), "its ABI block is"),
        (make_cubin(abi=cubin.expected_abi()[:-1]), "its ABI block is"),
        (make_cubin(kernels=cubin.expected_kernels()[1:]), f"it lacks the kernels {cubin.expected_kernels()[0]}"),
        (b"", "shorter than an ELF header"),
        (b"MZ" + GOOD[2:], "no 64-bit little-endian ELF"),
        (GOOD[:18] + b"\x3e\0" + GOOD[20:], "no CUDA binary"),
        (GOOD + b"\0" * cubin.MAX_BYTES, "it has more than 16 MiB"),
        (make_cubin(abi=[]), "tt_abi is no block of words"),
        (make_cubin(abi=[0] * 65), "tt_abi is no block of words"),
        (GOOD.replace(b"tt_abi\0", b"tt_abj\0"), "it holds no tt_abi"),
    ],
)
def test_a_cubin_that_could_not_be_launched_is_told_why(data: bytes, problem: str) -> None:
    assert problem in (cubin.problem_of(data, "sm_90") or "")


def test_a_cubin_of_ours_has_no_problem() -> None:
    assert cubin.problem_of(GOOD, "sm_90") is None


def test_no_truncation_gets_through() -> None:
    for length in range(len(GOOD)):
        with pytest.raises(NotElf):
            cubin.read_cubin(GOOD[:length])


@pytest.mark.parametrize(
    "at", [40, 58, 60, 62, *(SECTIONS_AT + 64 * i + o for i in range(7) for o in (0, 4, 24, 32, 40))]
)
@pytest.mark.parametrize("value", [0, 1, 0x7F, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63, 2**64 - 1])
def test_huge_offsets_sizes_and_counts_are_answers_or_refusals(at: int, value: int) -> None:
    width = {58: 2, 60: 2, 62: 2}.get(at, 4 if (at - SECTIONS_AT) % 64 in (0, 4, 40) and at >= SECTIONS_AT else 8)
    patched = bytearray(GOOD)
    patched[at : at + width] = (value & (256**width - 1)).to_bytes(width, "little")
    _read(bytes(patched))


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_no_bytes_do_more_than_be_refused(data: st.DataObject) -> None:
    patched = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(patched) - 1))
        patched[at] = data.draw(st.integers(0, 255))
    _read(bytes(patched[: data.draw(st.integers(0, len(patched)))]))


@given(st.binary(max_size=400))
def test_nor_do_bytes_that_were_never_a_cubin(data: bytes) -> None:
    _read(data)
    _read(GOOD[:64] + data)


def _read(data: bytes) -> None:
    try:
        facts = cubin.read_cubin(data)
    except NotElf:
        return
    assert len(facts.abi) <= cubin.MAX_ABI_WORDS


def test_a_note_longer_than_its_section_is_refused() -> None:
    at = GOOD.index(b"NVIDIA Corp\0") - 12
    patched = bytearray(GOOD)
    struct.pack_into("<III", patched, at, 12, 2**31, 2000)
    with pytest.raises(NotElf, match="longer than its section"):
        list(Elf(bytes(patched)).notes(".note.nv.tkinfo"))
    struct.pack_into("<III", patched, at, 2**32 - 1, 4, 2000)
    with pytest.raises(NotElf, match="longer than its section"):
        list(Elf(bytes(patched)).notes(".note.nv.tkinfo"))
