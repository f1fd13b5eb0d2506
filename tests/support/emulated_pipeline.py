"""The kernels of a program on documents, under the emulator: what a device would answer, asked for without one.

The native side (tests/simt/pipeline.cpp) gives every buffer its exact size, poisons and guards it; this one shapes what
comes out by document. Under a sanitizer the run is a child's. Not here: what the CPU engine would say, and documents
being redone by it.
"""

from __future__ import annotations

import bisect
import ctypes
import enum
import functools
import re
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.support import simt_build
from tests.support.material import ROOT

WORD = 32  # bytes of text
TILE = 4096
BOUNDARIES = "tt_left"
"""The last kernel of the boundary step."""
LAST = "tt_offsets"
_CONTROL_WORDS, _CONTROL_LEFT_DOCUMENTS = 32, 13
_U32 = ctypes.POINTER(ctypes.c_uint32)


class Left(enum.IntFlag):
    """TtLeft of kernels/device/abi.h."""

    MALFORMED = 1
    NORMALIZED = 2
    OVERLAP = 4
    FLAGS = 8
    GIANT = 16


class KernelFault(AssertionError):
    """What the emulator found, or a buffer that was written outside of."""


class _Input(ctypes.Structure):
    _fields_ = (
        ("image", ctypes.c_char_p),
        ("image_bytes", ctypes.c_uint64),
        ("text", ctypes.c_char_p),
        ("doc_begin", _U32),
        ("n", ctypes.c_uint32),
        ("n_docs", ctypes.c_uint32),
        ("plain", ctypes.c_uint32),
        ("offsets", ctypes.c_uint32),
        ("last", ctypes.c_char_p),
        ("seed", ctypes.c_uint64),
        ("resident_blocks", ctypes.c_uint32),
        ("shuffled_blocks", ctypes.c_uint32),
    )


_MASKS = ("bounds", "dropped", "covered", "tokens")
_OUTPUTS = ("doc_flags", *_MASKS, "token_id", "control", "ids", "row", "offset_begin", "offset_end")


class _Output(ctypes.Structure):
    _fields_ = tuple((name, _U32) for name in _OUTPUTS)


@dataclass(frozen=True)
class Document:
    """What the kernels say of one document. Positions are bytes of it; where there are flags, nothing else counts."""

    flags: Left
    pieces: list[int]  # where a piece or an added token begins
    dropped: list[int]  # those of them that have no ids
    covered: list[int]  # bytes of added tokens
    tokens: list[tuple[int, int]]  # where a token begins, and its id: until tt_pieces has run, added tokens alone
    ids: list[int]  # nothing before the last kernel has run
    offsets: list[tuple[int, int]]


_SOURCES = (simt_build.SIMT / "pipeline.cpp", simt_build.TOKTIER)
_INCLUDES = (ROOT / "native",)
_Arrays = dict[str, "ctypes.Array[ctypes.c_uint32]"]


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(simt_build.build_library("pipeline", _SOURCES, includes=_INCLUDES)))
    library.pipeline_run.argtypes = [
        ctypes.POINTER(_Input),
        ctypes.POINTER(_Output),
        ctypes.c_char_p,
        ctypes.c_uint64,
    ]
    return library


@functools.cache
def _program(variant: str) -> Path:
    sources = (simt_build.SIMT / "pipeline_program.cpp", *_SOURCES)
    return simt_build.build_program("pipeline", sources, variant=variant, includes=_INCLUDES)


def _bits(words: ctypes.Array[ctypes.c_uint32]) -> list[int]:
    """Places of the bits that are set, ascending."""
    text = bin(int.from_bytes(bytes(words), "little"))[:1:-1]
    return [found.start() for found in re.finditer("1", text)]


def _within(places: list[int], begin: int, end: int) -> list[int]:
    return [place - begin for place in places[bisect.bisect_left(places, begin) : bisect.bisect_left(places, end)]]


@dataclass(frozen=True)
class _Job:
    image: bytes
    text: bytes
    begins: list[int]
    plain: bool
    offsets: bool
    last: str
    seed: int
    resident_blocks: int
    shuffled_blocks: bool

    @property
    def sizes(self) -> dict[str, int]:
        """Words of each output."""
        n, documents = len(self.text), len(self.begins) - 1
        words = (n + WORD - 1) // WORD
        return {
            "doc_flags": documents,
            "bounds": words + 1,
            "dropped": words,
            "covered": words,
            "tokens": words + 1,
            "token_id": n,
            "control": _CONTROL_WORDS,
            "ids": n,
            "row": documents + 1,
            "offset_begin": n,
            "offset_end": n,
        }

    def in_process(self) -> _Arrays:
        arrays = {name: (ctypes.c_uint32 * size)() for name, size in self.sizes.items()}
        given = _Input(
            self.image,
            len(self.image),
            self.text,
            (ctypes.c_uint32 * len(self.begins))(*self.begins),
            len(self.text),
            len(self.begins) - 1,
            self.plain,
            self.offsets,
            self.last.encode(),
            self.seed,
            self.resident_blocks,
            self.shuffled_blocks,
        )
        wanted = _Output(*(ctypes.cast(arrays[name], _U32) for name in _OUTPUTS))
        report = ctypes.create_string_buffer(4096)
        if _library().pipeline_run(ctypes.byref(given), ctypes.byref(wanted), report, len(report)) != 0:
            raise KernelFault(report.value.decode(errors="replace"))
        return arrays

    def in_child(self, variant: str) -> _Arrays:
        """A file with the numbers, the name, the image, the begins and the text; one with all outputs comes back."""
        numbers = (len(self.image), len(self.text), len(self.begins) - 1, self.plain, self.offsets, self.seed)
        head = struct.pack("<8Q32s", *numbers, self.resident_blocks, self.shuffled_blocks, self.last.encode())
        begins = struct.pack(f"<{len(self.begins)}I", *self.begins)
        with tempfile.TemporaryDirectory() as directory:
            job, out = Path(directory) / "job", Path(directory) / "out"
            job.write_bytes(head + self.image + begins + self.text)
            done = simt_build.run(_program(variant), str(job), str(out), variant=variant)
            if done.returncode != 0:
                raise KernelFault(done.stdout + done.stderr)
            data = out.read_bytes()
        arrays, at = {}, 0
        for name in _OUTPUTS:
            arrays[name] = (ctypes.c_uint32 * self.sizes[name]).from_buffer_copy(data, at)
            at += 4 * self.sizes[name]
        return arrays


def run(
    image: bytes,
    documents: Sequence[bytes],
    *,
    plain: bool = False,
    offsets: bool = False,
    last: str = LAST,
    seed: int = 1,
    resident_blocks: int = 2,
    shuffled_blocks: bool = False,
    variant: str = "plain",
    pieces: bool = True,
) -> list[Document]:
    """Documents one behind the other in one chunk, on an image of `_native.device_tables`. `last`: the kernel after
    which the run ends; `variant`: of simt_build; without `pieces` documents have flags, ids and offsets alone, in half
    the time. Raises KernelFault."""
    begins = [0]
    for document in documents:
        begins.append(begins[-1] + len(document))
    job = _Job(image, b"".join(documents), begins, plain, offsets, last, seed, resident_blocks, shuffled_blocks)
    arrays = job.in_process() if variant == "plain" else job.in_child(variant)
    return _documents(arrays, begins, finished=last == LAST, offsets=offsets, pieces=pieces)


def _documents(arrays: _Arrays, begins: list[int], *, finished: bool, offsets: bool, pieces: bool) -> list[Document]:
    masks = {name: _bits(arrays[name]) if pieces else [] for name in _MASKS}
    if begins[-1] != 0 and int.from_bytes(bytes(arrays["bounds"]), "little").bit_length() - 1 != begins[-1]:
        raise KernelFault("no piece ends with the text")
    if arrays["control"][_CONTROL_LEFT_DOCUMENTS] != sum(flags != 0 for flags in arrays["doc_flags"]):
        raise KernelFault("the documents with a flag are not as many as are counted")
    out = []
    for k, (begin, end) in enumerate(pairwise(begins)):
        row = slice(arrays["row"][k], arrays["row"][k + 1]) if finished else slice(0)
        spans = zip(arrays["offset_begin"][row], arrays["offset_end"][row], strict=True) if offsets else ()
        out.append(
            Document(
                Left(arrays["doc_flags"][k]),
                _within(masks["bounds"], begin, end),
                _within(masks["dropped"], begin, end),
                _within(masks["covered"], begin, end),
                [(at, arrays["token_id"][begin + at]) for at in _within(masks["tokens"], begin, end)],
                list(arrays["ids"][row]),
                list(spans),
            )
        )
    return out
