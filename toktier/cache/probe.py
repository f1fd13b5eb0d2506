"""A few short texts given to a backend of which nothing else is known, to see whether it can be cut after its special
tokens. That is no proof: it finds a template that adds ids to every text, tokens that take in or look at what
follows, and fixed padding; of what shows only in longer texts, as truncation, it knows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

MOST_TOKENS = 64  # those of a set that are tried


def adds_ids(ids_of: Callable[[str], Sequence[int]]) -> bool:
    """Whether an empty text has ids: then parts have more than the whole."""
    return len(ids_of("")) != 0


def unsafe(tokens: Sequence[str], ids_of: Callable[[str], Sequence[int]]) -> dict[str, str]:
    """Tokens behind which a cut changed ids, with the reason."""
    found: dict[str, str] = {}
    for token in tokens[:MOST_TOKENS]:
        alone = list(ids_of(token))
        for rest in (" ", " a", "world", f"a{token}"):
            if list(ids_of(token + rest)) != alone + list(ids_of(rest)):
                found[token] = f"gives other ids when a text is cut behind it (seen with {rest!r} behind it)"
                break
    return found
