"""Random texts of what tokenizers get wrong (toktier/certify/hostile_texts.py), by seed: encoding, plain mode, batches
on two threads, decoding whole and by steps.

Not here: texts that reach every entry of the tables, which no amount of chance promises (`automaton`, `vocabulary`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toktier.certify.hostile_texts import hostile_texts
from toktier.certify.levels import Level
from toktier.certify.other_calls import COMPARED, check_batch, check_decoding, check_stream, decoding_of
from toktier.certify.suite import Suite, SuitePlan
from toktier.program import unicode

if TYPE_CHECKING:
    from toktier.certify.subject import Subject
    from toktier.certify.tally import Tally

TEXTS = {Level.QUICK: 4_000, Level.STANDARD: 60_000, Level.EXHAUSTIVE: 1_000_000}
PER_BLOCK = {Level.QUICK: 500, Level.STANDARD: 2_000, Level.EXHAUSTIVE: 2_000}
STREAMED_ONE_IN = 16
STREAMED_IDS = 400  # of each streamed text: a step costs a call on both sides


class FuzzSuite(Suite):
    name = "fuzz"
    meaning = (
        "seeded random texts of hostile characters, words, added tokens, vocabulary and damaged passages: ids, offsets,"
        " plain mode, batches on two threads, decoding and decode streams"
    )

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        vocabulary = vocabulary_texts(subject)
        facts: dict[str, Any] = {
            "texts": TEXTS[level],
            "vocabulary": len(vocabulary),
            "decoding": decoding_of(subject),
        }
        return SuitePlan(TEXTS[level] // PER_BLOCK[level], facts, payload=vocabulary)

    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        added = [placed.token.content for placed in subject.spec.added_tokens]
        texts = list(hostile_texts(added, PER_BLOCK[level], f"{seed}:{block}", plan.payload))
        decoding = plan.facts["decoding"] == COMPARED
        for number, text in enumerate(texts):
            tally.text(text, plain=True)
            if decoding:
                ids = subject.reference.encode(text, add_special_tokens=False).ids
                check_decoding(tally, text, ids)
                if number % STREAMED_ONE_IN == 0:
                    check_stream(tally, text, ids[:STREAMED_IDS])
        check_batch(tally, texts)


def vocabulary_texts(subject: Subject) -> list[str]:
    """Strings of the model's vocabulary that are text, in the order of the file; what the byte alphabet spells is read
    through it."""
    vocabulary = subject.spec.model.vocabulary
    if not subject.spec.pre_tokenizer.byte_level:
        return list(vocabulary)
    byte_of = {character: byte for byte, character in enumerate(unicode.byte_alphabet())}
    texts: list[str] = []
    for token in vocabulary:
        try:
            texts.append(bytes([byte_of[character] for character in token]).decode())
        except (KeyError, UnicodeDecodeError):
            continue
    return texts
