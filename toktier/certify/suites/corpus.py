"""Documents of the corpora that were given: ids and offsets; plain mode of chat messages and of one text in eight.

Nothing here depends on names of files and directories. Chat messages are rendered with the tokenizer's own added
tokens. Evidence holds digests and sizes, never a text; a failure document does hold the shortest text that differs.
Not here: reading (`corpora`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

from toktier.certify.conversations import render
from toktier.certify.corpora import BlockReader
from toktier.certify.levels import Level
from toktier.certify.suite import Suite, SuitePlan

if TYPE_CHECKING:
    from toktier.certify.subject import Subject
    from toktier.certify.tally import Tally

PLAIN_ONE_IN = 8  # plain texts, by their check sum: what has no special token in it reads the same


class CorpusSuite(Suite):
    name = "corpus"
    meaning = (
        "every document of the corpora that were given, whole: ids and offsets; special tokens as plain text in chat"
        " messages and in one text of eight"
    )
    version = 2

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        corpora = subject.read_corpora
        if not corpora:
            return SuitePlan(0, {}, "no corpus was given")
        facts: dict[str, Any] = {
            "corpora": len(corpora),
            "documents": sum(corpus.documents for corpus in corpora),
            "utf8_bytes": sum(corpus.utf8_bytes for corpus in corpora),
            "skipped": sum(sum(corpus.skipped.values()) for corpus in corpora),
        }
        reasons = {corpus.sha256[:12]: dict(corpus.skipped) for corpus in corpora if corpus.skipped}
        if reasons:
            facts["skipped_by_reason"] = reasons
            facts["skipped_places"] = [place for corpus in corpora for place in corpus.skipped_places]
        blocks = [(index, number) for index, corpus in enumerate(corpora) for number in range(len(corpus.blocks))]
        readers = [BlockReader(corpus) for corpus in corpora]
        why = None if blocks else "the corpora hold no document"
        return SuitePlan(len(blocks), facts, why, payload=(blocks, readers))

    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        blocks, readers = plan.payload
        corpus, number = blocks[block]
        added = [placed.token.content for placed in subject.spec.added_tokens]
        specials = any(placed.token.special for placed in subject.spec.added_tokens)
        for document in readers[corpus].documents(number):
            if isinstance(document, str):
                tally.text(document, plain=specials and crc32(document.encode()) % PLAIN_ONE_IN == 0)
            else:
                tally.text(render(document, added), plain=specials)
