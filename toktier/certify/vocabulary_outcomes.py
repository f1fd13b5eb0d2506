"""What became of a token or a merge rule in the vocabulary suite: one table, mirrored from native/coverage.

Not here: the search and the proofs (native/coverage), the texts (`suites/vocabulary.py`).
"""

from __future__ import annotations

import enum


class Outcome(enum.IntEnum):
    """As native/coverage/vocabulary_search.h numbers them; a test compares the two."""

    ABSENT = 0
    SHOWN = 1
    OPEN = 2
    INVALID_UTF8 = 3
    NORMALIZER = 4
    ADDED_TOKEN = 5
    PRE_TOKENIZER = 6
    MERGES = 7
    NEIGHBOURS = 8
    HAS_SYMBOL = 9
    WHOLE_PIECE = 10


# Of those that are proofs: why no text can produce the token, or fire the rule.
PROOFS: dict[Outcome, str] = {
    Outcome.INVALID_UTF8: "no valid UTF-8 contains its bytes",
    Outcome.NORMALIZER: "the normalizer never leaves its text",
    Outcome.ADDED_TOKEN: "an added token inside of it is always taken first",
    Outcome.PRE_TOKENIZER: "in every context a piece begins or ends inside of it",
    Outcome.MERGES: "merging its own text does not give it, and no piece that is looked up whole can be it",
    Outcome.NEIGHBOURS: "it cannot stand alone in a piece, and beside every other token it merges away",
    Outcome.HAS_SYMBOL: "it stands for characters without a symbol, and all of them have one",
    Outcome.WHOLE_PIECE: "every piece that holds its product is its product, and is looked up whole",
}
