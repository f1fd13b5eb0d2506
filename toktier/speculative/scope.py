"""The key of a scope: who may copy from whom. A plain tuple of the same four parts is the same key."""

from __future__ import annotations

from typing import NamedTuple


class Scope(NamedTuple):
    """Requests see each other's tokens exactly where all four parts are equal: by type and value, character by
    character. `1` and `"1"` are two keys, as are `"é"` composed and decomposed.

    Each part is a str or an int; there is no default, because a part that is left out is a wall that is not there.
    """

    model: str | int
    tokenizer: str | int
    adapter: str | int
    tenant: str | int
