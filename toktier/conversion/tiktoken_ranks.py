"""Reads a tiktoken rank file: on each line the base64 of a token's bytes, a space, its rank in decimal.

Strict and bounded, because a rank file is somebody else's: one spelling of each token, no token twice, no rank twice.
Not here: merge rules (`rank_merges`), and the pattern and special tokens, which a rank file does not hold.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable

from toktier.errors import ArtifactDamaged
from toktier.labels import quoted

MAX_BYTES = 64 << 20  # fourteen times the largest known rank file
MAX_TOKENS = 4_000_000
MAX_TOKEN_BYTES = 4096  # the longest known token has 148
MAX_RANK = (1 << 32) - 1


def read_ranks(data: bytes, name: str = "tiktoken.model") -> dict[bytes, int]:
    """Token → rank, in the order of the file. Raises ArtifactDamaged with the line for what is no rank file."""
    if len(data) > MAX_BYTES:
        raise damaged(name, f"it has {len(data):,} bytes, a rank file has at most {MAX_BYTES:,}")
    return collect_ranks(name, (_line(name, number, line) for number, line in enumerate(_lines(data), 1)))


def collect_ranks(name: str, entries: Iterable[tuple[str, bytes, int]]) -> dict[bytes, int]:
    """Token → rank from (place, token, rank), each token and each rank once, every single byte among the tokens.

    Raises ArtifactDamaged. Without all 256 bytes a text could have no tokens at all.
    """
    ranks: dict[bytes, int] = {}
    taken: set[int] = set()
    for place, token, rank in entries:
        if not 0 < len(token) <= MAX_TOKEN_BYTES:
            raise damaged(name, f"{place} holds a token of {len(token):,} bytes, expected 1 to {MAX_TOKEN_BYTES:,}")
        if token in ranks:
            raise damaged(name, f"{place} repeats the token {token[:40]!r}")
        if rank in taken:
            raise damaged(name, f"{place} repeats the rank {rank}")
        if len(ranks) == MAX_TOKENS:
            raise damaged(name, f"it has more than {MAX_TOKENS:,} tokens")
        ranks[token] = rank
        taken.add(rank)
    missing = [value for value in range(256) if bytes([value]) not in ranks]
    if missing:
        raise damaged(name, f"{len(missing)} single bytes are no tokens, the first is 0x{missing[0]:02X}")
    return ranks


def decoded(name: str, place: str, encoded: bytes) -> bytes:
    """The bytes of one base64 text in its only spelling. Raises ArtifactDamaged."""
    try:
        token = binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError:
        token = b""
    if not token or binascii.b2a_base64(token, newline=False) != encoded:
        raise damaged(name, f"{place} holds {quoted(encoded[:200].decode('latin-1'))}, expected a token in base64")
    return token


def damaged(name: str, problem: str) -> ArtifactDamaged:
    """The error for bytes that hold no such vocabulary."""
    return ArtifactDamaged(
        f"{name} holds no vocabulary that can be converted: {problem}",
        details={"file": name},
        remedy="copy or download the file again",
    )


def _lines(data: bytes) -> list[bytes]:
    return data.removesuffix(b"\n").split(b"\n")


def _line(name: str, number: int, line: bytes) -> tuple[str, bytes, int]:
    place = f"line {number}"
    encoded, separator, decimal = line.partition(b" ")
    # int() takes signs, blanks and underscores; at most ten digits keep it below its own limit
    if not separator or not decimal.isdigit() or len(decimal) > 10 or (rank := int(decimal)) > MAX_RANK:
        raise damaged(name, f"{place} is {quoted(line[:200].decode('latin-1'))}, expected TOKEN RANK")
    return place, decoded(name, place, encoded), rank
