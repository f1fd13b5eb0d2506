"""Checks of the calls beside `encode`: counts, batches, decoding whole and by steps.

Each is compared with the reference, or with ids that a check of the same block has compared with it. Their results
carry no name of who made them, so the counters of the tokenizer are asked: what the backend did not answer, or not
alone, is routed, whatever it equals. Not here: ids and offsets of a text (`tally`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenizers.decoders import DecodeStream as ReferenceStream

from toktier.certify.tally import little_endian_ids

if TYPE_CHECKING:
    from toktier.certify.subject import Subject
    from toktier.certify.tally import Tally

OWN_DECODERS = ("native", "third_party")  # what `explain` says where the backend under test decodes


COMPARED = "compared"


def decoding_of(subject: Subject) -> str:
    """Whether the backend decodes, as a fact of a plan: COMPARED, or who does it instead, which leaves nothing to
    compare."""
    if subject.on_device:
        return "of the engine on the CPU"
    own = subject.tokenizer.explain(summary=True)["decode"] in OWN_DECODERS
    return COMPARED if own else "left to the reference"


def named(text: str) -> str:
    """A text in a failure that is not about its ids: its digest and its beginning."""
    return f"{hashlib.sha256(text.encode()).hexdigest()[:16]} {text[:60]!a}"


def check_count(tally: Tally, text: str, ids: Sequence[int], add_special_tokens: bool = False) -> None:
    """`count` against the number of ids that the reference gave."""
    subject = tally.subject
    before = subject.answered()
    got = subject.tokenizer.count(text, add_special_tokens)
    if not subject.answered().only_the_backend(before, texts=1):
        tally.routed(1 + len(subject.other_levels))
        return
    tally.check("count", named(text), got, len(ids))
    for level, encoder in subject.other_levels:
        tally.check(f"count at level {level}", named(text), encoder.count(text, add_special_tokens), len(ids))


def check_batch(tally: Tally, texts: Sequence[str], add_special_tokens: bool = False, workers: int = 2) -> None:
    """Every row of `encode_batch` against the text encoded alone. Nothing where the file pads the rows of a batch."""
    tokenizer = tally.subject.tokenizer
    if tally.subject.spec.padding is not None:
        return
    batch = tokenizer.encode_batch(texts, add_special_tokens, workers=workers)
    backend = tally.subject.served_as
    if batch.backend != backend:
        tally.routed(len(texts))
        return
    for text, row in zip(texts, batch, strict=True):
        alone = tokenizer.encode(text, add_special_tokens)
        if (row.backend, alone.backend) != (backend, backend):
            tally.routed()
            continue
        tally.check("batch", named(text), _digest(row.ids), _digest(alone.ids))


def check_decoding(tally: Tally, text: str, ids: Sequence[int]) -> None:
    """Text of `ids` with and without special tokens."""
    subject, row = tally.subject, list(ids)
    before = subject.answered()
    got = [subject.tokenizer.decode(row, skip) for skip in (False, True)]
    if not subject.answered().only_the_backend(before, decodings=len(got)):
        tally.routed(len(got))
        return
    for skip, mine in zip((False, True), got, strict=True):
        expected = subject.reference.decode(row, skip_special_tokens=skip)
        tally.check("decode", f"{named(text)} skip_special_tokens={skip}", mine, expected)


def check_stream(tally: Tally, text: str, ids: Sequence[int]) -> None:
    """What each id of a decode stream gives. The reference's stream ends with an error where a run of byte tokens turns
    out to be malformed after part of it was given; ours goes on, so only what comes before is compared."""
    subject = tally.subject
    before = subject.answered()
    mine = subject.tokenizer.decode_stream()
    theirs = ReferenceStream(skip_special_tokens=False)
    expected: list[str | None] = []
    for token in ids:
        try:
            expected.append(theirs.step(subject.reference, token))
        except Exception:  # the reference has no type for it
            break
    got = [mine.step(token) for token in ids[: len(expected)]]
    # A stream decodes at least once for every text that it gives.
    if not subject.answered().only_the_backend(before, decodings=sum(bool(piece) for piece in got)):
        tally.routed()
        return
    tally.check("decode_stream", named(text), got, expected)


def _digest(ids: Sequence[int]) -> str:
    return hashlib.sha256(little_endian_ids(list(ids))).hexdigest()
