"""Texts through the kernels of a program, under the emulator, and through the installed reference; honest counts.

Ids and offsets of every document that the kernels finish are compared with the reference's. A document that they flag
is no agreement of theirs: the CPU engine redoes it, and it is counted by its reason. Not here: which texts
(`emulated_texts`, `run_emulated`), the host side of the engine beyond `by_host`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tokenizers

from tests.conformance.emulated_texts import Text
from tests.support import emulated_pipeline
from tests.support.emulated_pipeline import Document, KernelFault, Left
from tests.support.fake_cuda import fake_cuda
from toktier import _native
from toktier.certify.minimise import minimise
from toktier.program.compile import compile_tokenizer
from toktier.program.file import read_program
from toktier.program.meta import read_meta

SEEDS = (1, 2, 3)
CHUNK_BYTES = 1 << 18
LANE_BYTES = 1 << 17
MINIMISE_CALLS = 400  # a call runs all kernels on the text that is left


class NotTaken(Exception):
    """No device takes this program: the premise of docs/gpu.md that fails, as a clause."""


@dataclass
class Counts:
    """Documents and bytes count each text once; what was compared counts every lane order, offsets those of the first.
    `redone`: documents left to the CPU engine, by the names of `Left`, or of the counters of the host."""

    documents: int = 0
    bytes: int = 0
    device_documents: int = 0
    device_bytes: int = 0
    compared_ids: int = 0
    compared_offsets: int = 0
    redone: dict[str, int] = field(default_factory=dict)
    redone_bytes: int = 0
    mismatches: list[dict[str, Any]] = field(default_factory=list)

    def leave(self, reason: str, documents: int) -> None:
        if documents:
            self.redone[reason] = self.redone.get(reason, 0) + documents

    def differ(self, what: str, text: Text, seed: int, got: object, expected: object) -> None:
        shown = {"got": ascii(got)[:300], "expected": ascii(expected)[:300]}
        self.mismatches.append({"what": what, "name": text.name, "seed": seed, "text": text.text, **shown})


class Subject:
    """A tokenizer.json as a program for a device, and in the reference. `changes`: top-level fields put in its place.

    The reference has no post-processor: what it does to ids and offsets is the work of the host.
    """

    def __init__(self, data: bytes, **changes: Any) -> None:
        if changes:
            data = json.dumps({**json.loads(data), **changes}, ensure_ascii=False).encode()
        file = compile_tokenizer(data)
        self.program = _native.Program(file)
        premise = _native.unsuitable(self.program)
        if premise is not None:
            raise NotTaken(premise[1])
        self.image = _native.device_tables(self.program)
        self.encoder = _native.EncoderBase(self.program)
        self.meta = read_meta(read_program(file).section("META"))
        self.reference = tokenizers.Tokenizer.from_buffer(data)
        self.reference.post_processor = None
        self.added = [token.content for _, token in sorted(self.reference.get_added_tokens_decoder().items())]
        self.normalizes = self.reference.normalizer is not None

    @property
    def characters(self) -> list[str]:
        """One of each class of the pre-tokenizer."""
        return [chr(code_point) for code_point in self.meta["boundary"]["representatives"]]

    def run(self, texts: Sequence[Text], **options: Any) -> list[Document]:
        """One chunk of these documents."""
        return emulated_pipeline.run(self.image, [text.text.encode() for text in texts], pieces=False, **options)


def chunks(texts: Iterable[Text], size: int = CHUNK_BYTES) -> Iterator[list[Text]]:
    """Documents one behind the other until there are `size` bytes; one that is to lie alone begins a chunk."""
    held: list[Text] = []
    room = size
    for text in texts:
        if held and (text.alone or room <= 0):
            yield held
            held, room = [], size
        held.append(text)
        room -= len(text.text.encode())
    if held:
        yield held


def compare(subject: Subject, texts: Iterable[Text], seeds: Sequence[int] = SEEDS, *, variant: str = "plain") -> Counts:
    """All of them, with each order of lanes. Which documents are flagged must not depend on the order."""
    counts = Counts()
    for chunk in chunks(texts):
        _compare_chunk(subject, chunk, seeds, variant, counts)
    if counts.mismatches:
        shortest = min(counts.mismatches, key=lambda mismatch: len(mismatch["text"]))
        shortest["minimised"] = minimised(subject, shortest["text"], shortest["seed"], variant)
    return counts


def _compare_chunk(subject: Subject, chunk: list[Text], seeds: Sequence[int], variant: str, counts: Counts) -> None:
    wanted = subject.reference.encode_batch([text.text for text in chunk], add_special_tokens=False)
    rows = [(encoding.ids, encoding.offsets) for encoding in wanted]
    flags: list[Left] | None = None
    for seed in seeds:
        try:
            with_offsets = seed == seeds[0]
            found = subject.run(chunk, seed=seed, offsets=with_offsets, variant=variant, **_order(seed))
        except KernelFault as fault:
            counts.differ("fault of a kernel", Text("chunk", "".join(t.text for t in chunk)), seed, str(fault), "none")
            continue
        if flags is None:
            flags = [document.flags for document in found]
            _count_left(subject, chunk, rows, flags, counts)
        for text, document, (ids, offsets), expected in zip(chunk, found, rows, flags, strict=True):
            if document.flags != expected:
                counts.differ("flags", text, seed, document.flags, expected)
            if document.flags:
                continue
            counts.compared_ids += len(ids)
            counts.compared_offsets += len(offsets) if with_offsets else 0
            if document.ids != ids:
                counts.differ("ids", text, seed, document.ids, ids)
            elif with_offsets and document.offsets != offsets:
                counts.differ("offsets", text, seed, document.offsets, offsets)


def _order(seed: int) -> dict[str, Any]:
    """How many blocks run at once, and in which order they begin, differ with the seed, too."""
    return {"resident_blocks": 1 + seed % 3, "shuffled_blocks": seed % 2 == 0}


def _count_left(
    subject: Subject,
    chunk: list[Text],
    rows: list[tuple[list[int], list[tuple[int, int]]]],
    flags: list[Left],
    counts: Counts,
) -> None:
    """Each document once: by the device, or redone by the CPU engine, which must agree with the reference as well."""
    for text, (ids, _), flag in zip(chunk, rows, flags, strict=True):
        size = len(text.text.encode())
        counts.documents += 1
        counts.bytes += size
        if not flag:
            counts.device_documents += 1
            counts.device_bytes += size
            continue
        counts.leave(flag.name or str(int(flag)), 1)
        counts.redone_bytes += size
        redone = subject.encoder.encode(text.text).ids
        if redone != ids:
            counts.differ("ids of the CPU engine", text, 0, redone, ids)


def minimised(subject: Subject, text: str, seed: int, variant: str = "plain") -> str | None:
    """The shortest text that still differs with this order of lanes; None where the text alone does not."""

    def differs(shorter: str) -> bool:
        expected = subject.reference.encode(shorter, add_special_tokens=False)
        try:
            (found,) = subject.run([Text("", shorter)], seed=seed, offsets=True, variant=variant, **_order(seed))
        except KernelFault:
            return True
        return not found.flags and (found.ids, found.offsets) != (expected.ids, expected.offsets)

    return minimise(text, differs, MINIMISE_CALLS) if differs(text) else None


Agrees = Callable[[Text, bool, list[int]], bool]


def by_host(subject: Subject, texts: Sequence[Text], agrees: Agrees) -> Counts:
    """The same documents as batches of the engine's host side on the emulated driver, which cuts, splices and puts the
    template around; `agrees(text, add_special_tokens, ids)` knows
    what is right."""
    counts = Counts()
    cuda = fake_cuda()
    cuda.reset()
    engine = cuda.engine(subject.program, lane_bytes=LANE_BYTES)
    for special in (False, True):
        batch = engine.encode_batch([text.text for text in texts], add_special_tokens=special)
        for k, text in enumerate(texts):
            ids = list(batch[k].ids)
            counts.compared_ids += len(ids)
            if not agrees(text, special, ids):
                counts.differ(f"ids of the host (add_special_tokens={special})", text, 1, ids, "the case file")
    told = engine.counters()
    counts.documents, counts.bytes = told["texts"], told["bytes"]
    counts.device_documents = told["device_texts"]
    for name, n in (*told["redone"].items(), *((name, told[name]) for name in ("uncut", "fallen", "faults"))):
        counts.leave(name, n)
    engine.close()
    cuda.assert_clean()
    return counts
