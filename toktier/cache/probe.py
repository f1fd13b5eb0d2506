"""A few short texts given to a backend of which nothing else is known, to see whether it can be cut after its special
tokens. That is no proof: it finds a template that adds ids to every text, tokens that take in or look at what
follows, and fixed padding; of what shows only in longer texts, as truncation, it knows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

MOST_TOKENS = 1024  # of a set, with six texts for each: a tenth of a second; others are not cut behind
_RESTS = (" ", " a", "world")


def against_cuts(ids_of: Callable[[str], Sequence[int]]) -> str | None:
    """What an empty text says against cutting any; None: nothing."""
    try:
        adds = len(ids_of("")) != 0
    except Exception as error:
        return f"the backend raised {type(error).__name__} for an empty text"
    return "the backend gives ids to an empty text, so that parts have too many" if adds else None


def unsafe(tokens: Sequence[str], ids_of: Callable[[str], Sequence[int]]) -> dict[str, str]:
    """Tokens behind which a cut changed ids, with the reason."""
    found = dict.fromkeys(tokens[MOST_TOKENS:], f"is none of the first {MOST_TOKENS}, which alone are tried")
    of_rests: dict[str, list[int]] = {}
    for token in tokens[:MOST_TOKENS]:
        try:
            of_rests = of_rests or {rest: list(ids_of(rest)) for rest in _RESTS}
            alone = list(ids_of(token))
            of_all = {**of_rests, f"a{token}": list(ids_of(f"a{token}"))}
            changed = next((rest for rest, ids in of_all.items() if list(ids_of(token + rest)) != alone + ids), None)
        except Exception as error:
            found[token] = f"is in a short text for which the backend raised {type(error).__name__}"
            continue
        if changed is not None:
            found[token] = f"gives other ids when a text is cut behind it (seen with {changed!r} behind it)"
    return found
