"""Texts for the emulated kernels that no corpus holds: strings of classes, runs, chains, added tokens at edges.

Deterministic. Not here: corpora and case files, which `run_emulated` reads; what is compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.support.emulated_pipeline import TILE, WORD

LONGEST_CLASS_STRING = 4
RUNS: dict[str, str] = {
    "letter": "a",
    "capital": "E",
    "space": " ",
    "newline": "\n",
    "crlf": "\r\n",
    "blanks": " \n",
    "tab": "\t",
    "digit": "7",
    "arabic digit": "\u0663",
    "full stop": ".",
    "equals": "=",
    "apostrophe": "'",
    "han": "中",
    "hangul": "가",
    "emoji": "😀",
    "family": "👨\u200d👩\u200d👧",
    "zalgo": "e\u0338\u0489\u035c\u0321",
}
"""Zalgo is of marks that no normal form composes or moves, so that programs with a normalizer keep it, too."""
RUN_BYTES = (33, 257, TILE - 1, TILE, TILE + 1, 20_000)
CHAINS = ("'s't're've'm'll'd", "I'LL'VE", "don't ", "''s'", "x'\u017f'S ", "we\u2019ll'd\n")
CHAIN_BYTES = TILE + 700
TOKENS_AT_EDGES = 6
FILLER = " word"


@dataclass(frozen=True)
class Text:
    """`alone`: it begins its chunk, so that its bytes lie where its edges are meant to be."""

    name: str
    text: str
    alone: bool = False


def class_strings(characters: Sequence[str], longest: int = LONGEST_CLASS_STRING) -> Iterator[Text]:
    """Every string of 1 to `longest` of these characters, one of each class."""
    for length in range(1, longest + 1):
        for string in itertools.product(characters, repeat=length):
            yield Text("class string", "".join(string))


def of_bytes(unit: str, size: int) -> str:
    """`unit` again and again, in at most `size` bytes and less than one character below."""
    return (unit * (size // len(unit.encode()) + 1)).encode()[:size].decode(errors="ignore")


def runs(sizes: Sequence[int] = RUN_BYTES) -> Iterator[Text]:
    for name, unit in RUNS.items():
        for size in sizes:
            yield Text(f"{name} x {size} bytes", of_bytes(unit, size))
        yield Text(f"{name} between letters", "b" + of_bytes(unit, TILE) + "b 1")


def chains(size: int = CHAIN_BYTES) -> Iterator[Text]:
    for unit in CHAINS:
        yield Text(f"chain of {unit!a}", of_bytes(unit, size))


def tokens_at_edges(added: Sequence[str]) -> Iterator[Text]:
    """Some added tokens, among them the longest and the shortest, each twice in a row before, across and behind edges
    of words and of tiles."""
    by_size = sorted((token for token in added if token), key=lambda token: (len(token.encode()), token))
    step = max(1, (len(by_size) - 1) // (TOKENS_AT_EDGES - 1))
    for token in dict.fromkeys([*by_size[::step][: TOKENS_AT_EDGES - 1], *by_size[-1:]]):
        size = len(token.encode())
        shifts = sorted({-size, -(size // 2), -1, 0, 1})
        for unit, gap in ((TILE, 1), (WORD, 2 + 2 * size // WORD + 2)):
            text = ""
            for k, shift in enumerate(shifts, 1):
                text += of_bytes(FILLER, k * gap * unit + shift - len(text.encode())) + token * 2
            yield Text(f"{token} at edges of {unit}", text + FILLER, alone=True)
