"""Decoding of every id: alone, among others in rows that no text gives, and beyond the vocabulary.

`cases` and `fuzz` decode what texts give: of a large vocabulary that is a small part, and always whole characters.
Not here: decode streams (`fuzz`).
"""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

from toktier.certify.levels import Level
from toktier.certify.other_calls import COMPARED, decoding_of
from toktier.certify.suite import Suite, SuitePlan

if TYPE_CHECKING:
    from toktier.certify.subject import Subject
    from toktier.certify.tally import Tally

BLOCK = 65_536  # ids: about half a second
ROW = 12  # ids of a row at most
ROUNDS = {Level.QUICK: 1, Level.STANDARD: 4, Level.EXHAUSTIVE: 16}
BEYOND = 16  # ids behind the last one


class DecodingSuite(Suite):
    name = "decoding"
    meaning = (
        "every id decoded alone, and all of them shuffled into rows of 1 to 12 that no text need give, with and without"
        " special tokens; ids beyond the vocabulary among them"
    )

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        decoding = decoding_of(subject)
        if decoding != COMPARED:
            return SuitePlan(0, why=f"decoding is {decoding}")
        ids = subject.native.n_ids + BEYOND
        blocks = -(-ids // BLOCK)
        return SuitePlan(blocks, {"ids": ids, "rounds": ROUNDS[level]}, None, ids)

    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        ids = list(range(block * BLOCK, min((block + 1) * BLOCK, plan.payload)))
        _check(tally, [[token] for token in ids], False)
        rng = random.Random(f"decoding {seed} {block}")
        for _ in range(ROUNDS[level]):
            rng.shuffle(ids)
            rows, at = [], 0
            while at < len(ids):
                size = rng.randint(1, ROW)
                rows.append(ids[at : at + size])
                at += size
            for skip in (False, True):
                _check(tally, rows, skip)


def _check(tally: Tally, rows: list[list[int]], skip: bool) -> None:
    """Rows as one comparison each; what was expected goes into the digest at once. Unless the backend decoded all of
    them, and the reference none, no row counts as agreement: which ones it was cannot be told."""
    subject = tally.subject
    decode, reference = subject.tokenizer.decode, subject.reference
    evidence, agreed = hashlib.sha256(), 0
    before = subject.answered()
    for row in rows:
        text = reference.decode(row, skip_special_tokens=skip)
        evidence.update(f"{row}\0{text}\n".encode())
        got = decode(row, skip)
        if got == text:
            agreed += 1
        else:
            tally.check("decode", f"{row} skip_special_tokens={skip}", got, text)
    if subject.answered().only_the_backend(before, decodings=len(rows)):
        tally.agreed(agreed, evidence.digest())
    else:
        tally.routed(agreed)
