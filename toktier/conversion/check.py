"""Checks a conversion on this host: several processes with other hash seeds, the same bytes from all of them, and what
the result says of its added tokens. Not here: which digest is expected, and where inputs come from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toktier.conversion.pinned import Converter
from toktier.conversion.run_alone import run
from toktier.errors import EnvironmentFault

_DESCRIBED = frozenset({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"})


@dataclass(frozen=True, slots=True)
class AddedTokens:
    """`contiguous`: their ids have no gap. `described`: each states all of its flags. `first_id` is None for none."""

    count: int
    special: int
    first_id: int | None
    contiguous: bool
    described: bool


@dataclass(frozen=True, slots=True)
class Conversion:
    """What `runs` processes gave. `digests` has one SHA-256 for each different result; `size` is of the first."""

    runs: int
    digests: tuple[str, ...]
    size: int
    added_tokens: AddedTokens

    @property
    def deterministic(self) -> bool:
        return len(self.digests) == 1


def check(converter: Converter, paths: Sequence[Path], runs: int = 2) -> Conversion:
    """Converts in `runs` new processes. Raises what the converter raises, EnvironmentFault when a process fails."""
    digests: dict[str, None] = {}
    first = b""
    for seed in range(1, runs + 1):
        try:
            data = run(converter.name, paths, seed)
        except EnvironmentFault:
            # A process says little of what was wrong with the inputs; this one raises it, if it was that.
            converter.run({name: path.read_bytes() for name, path in zip(converter.inputs, paths, strict=True)})
            raise
        digests[hashlib.sha256(data).hexdigest()] = None
        first = first or data
    return Conversion(runs, tuple(digests), len(first), added_tokens_of(first))


def added_tokens_of(tokenizer: bytes) -> AddedTokens:
    """Facts about the added tokens of a tokenizer.json that a converter wrote."""
    tokens = json.loads(tokenizer)["added_tokens"]
    ids = [token["id"] for token in tokens]
    return AddedTokens(
        count=len(tokens),
        special=sum(token["special"] for token in tokens),
        first_id=ids[0] if ids else None,
        contiguous=ids == list(range(ids[0], ids[0] + len(ids))) if ids else True,
        described=all(set(token) == _DESCRIBED for token in tokens),
    )
