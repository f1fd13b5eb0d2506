"""Candidates against pins: a file is what its SHA-256 says, whatever it is called and wherever it was found.

Only files of a pinned size are read at all, so that a directory of model weights costs a stat per file. Not here: what
to do with what was found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from toktier.artifacts.containers import Candidate
from toktier.artifacts.pins import PinnedFile, Pins
from toktier.errors import ToktierError

# Below this size another file may well have the size of a pinned one by chance.
TELLING_SIZE = 100_000


@dataclass(frozen=True, slots=True)
class Found:
    """Bytes that equal a pin. `files` are all pins with this content, `where` is for people, `path` is set where the
    bytes lie in a file of their own."""

    files: tuple[PinnedFile, ...]
    data: bytes
    where: str
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A file with the size of a pinned one and other content: damaged, changed, or by chance."""

    where: str
    size: int
    sha256: str
    files: tuple[PinnedFile, ...]


@dataclass(slots=True)
class Tally:
    """What a scan saw."""

    looked_at: int = 0
    hashed: int = 0
    near_misses: list[NearMiss] = field(default_factory=list)
    passed_over: list[ToktierError] = field(default_factory=list)  # by `containers.candidates`


def recognise(
    stream: Iterable[Candidate], pins: Pins, *, tally: Tally | None = None, wanted: Container[str] | None = None
) -> Iterator[Found]:
    """Pinned files among the candidates, in order. `wanted` limits them to these digests."""
    tally = tally if tally is not None else Tally()
    largest = max(pins.sizes, default=0)
    for candidate in stream:
        tally.looked_at += 1
        if candidate.size is not None and candidate.size not in pins.sizes:
            continue
        data = candidate.read(largest if candidate.size is None else candidate.size)
        if data is None or len(data) not in pins.sizes:
            continue
        tally.hashed += 1
        digest = hashlib.sha256(data).hexdigest()
        files = pins.of_digest(digest)
        if not files:
            if len(data) >= TELLING_SIZE:
                tally.near_misses.append(NearMiss(candidate.where, len(data), digest, pins.of_size(len(data))))
        elif wanted is None or digest in wanted:
            yield Found(files, data, candidate.where, candidate.path)
