"""The hostile cases that ship with the package (toktier/certify/cases.jsonl): ids and offsets with and without special
tokens, counts, batches and decoding.

Each line is {"kind", "text"}, and "times" where the text is repeated. The file's digest is a fact of the plan. Not
here: texts made by chance (`fuzz`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toktier.certify.levels import Level
from toktier.certify.other_calls import COMPARED, check_batch, check_count, check_decoding, decoding_of
from toktier.certify.suite import Suite, SuitePlan

if TYPE_CHECKING:
    from toktier.certify.subject import Subject
    from toktier.certify.tally import Tally

FILE = Path(__file__).parent.parent / "cases.jsonl"
PER_BLOCK = 300


@cache
def _file() -> tuple[str, tuple[tuple[str, str], ...]]:
    """SHA-256 (hex) of the file, and its cases: (kind, text)."""
    data = FILE.read_bytes()
    cases = [json.loads(line) for line in data.splitlines()]
    return hashlib.sha256(data).hexdigest(), tuple((c["kind"], c["text"] * c.get("times", 1)) for c in cases)


def cases() -> tuple[tuple[str, str], ...]:
    """(kind, text) of every case, in the order of the file."""
    return _file()[1]


class CasesSuite(Suite):
    name = "cases"
    meaning = "built-in hostile texts: ids and offsets with and without special tokens, count, batch rows, decoding"

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        digest, found = _file()
        kinds = Counter(kind for kind, _ in found)
        facts: dict[str, Any] = {"sha256": digest, "cases": len(found), "kinds": dict(sorted(kinds.items()))}
        facts["decoding"] = decoding_of(subject)
        return SuitePlan(-(-len(found) // PER_BLOCK), facts)

    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        texts = [text for _, text in cases()[block * PER_BLOCK : (block + 1) * PER_BLOCK]]
        decoding = plan.facts["decoding"] == COMPARED
        for text in texts:
            tally.text(text, with_specials=True, plain=True)
            for add_special_tokens in (False, True):
                ids = subject.reference.encode(text, add_special_tokens=add_special_tokens).ids
                check_count(tally, text, ids, add_special_tokens)
                if decoding:
                    check_decoding(tally, text, ids)
        for add_special_tokens in (False, True):
            check_batch(tally, texts, add_special_tokens)
