"""A text that is presented to a look-up, with its chain as far as it was asked for, and what look-ups count.

Not here: where stored prefixes are found; each store does that its own way and believes nothing that fails here.
"""

from __future__ import annotations

from hashlib import sha256

from toktier.sessions import chains
from toktier.sessions.records import CommitPoint

CANDIDATES = 32  # sessions that share most of a text: of more, the newest are looked at


class Counters:
    """Of this process since the store was opened. `unavailable`: misses because the store could not be asked."""

    __slots__ = ("failed_checks", "hits", "lookups", "misses", "unavailable")

    def __init__(self) -> None:
        self.lookups = self.hits = self.misses = self.failed_checks = self.unavailable = 0


class Presented:
    """The presented text and its chain, as far as it was asked for."""

    def __init__(self, text: bytes, fingerprint: str) -> None:
        self.text = text
        self.chain = [chains.text_seed(fingerprint)]
        self.marks = len(text) // chains.MARK

    def upto(self, blocks: int) -> bytes:
        """The chain after so many whole blocks."""
        chain, text = self.chain, self.text
        for at in range((len(chain) - 1) * chains.BLOCK, blocks * chains.BLOCK, chains.BLOCK):
            chain.append(sha256(chain[-1] + text[at : at + chains.BLOCK]).digest())
        return chain[blocks]

    def mark(self, number: int) -> bytes:
        """The chain at a mark."""
        return self.upto(number * chains.MARK_BLOCKS)

    def holds(self, point: CommitPoint) -> bool:
        """Whether `point` is one of this very text."""
        whole = point.text_bytes // chains.BLOCK
        end = chains.TextEnd(self.upto(whole), self.text[whole * chains.BLOCK : point.text_bytes])
        return chains.text_digest(end, point.tokens, point.text_bytes, point.code_points) == point.text_digest
