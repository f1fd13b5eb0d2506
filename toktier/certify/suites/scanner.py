"""Edges of how the engine works through a text: blocks of pieces, lots of boundaries, caches, merge forms, alignment.

None of these numbers may show in an id. They are stated here (`EDGES`) and a test holds them against the sources; other
engines bring edges of their own, of which the powers of two and 64-byte alignments are the likely ones. Not here: what
the tables say (`automaton`), vocabulary (`vocabulary`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toktier.certify.boundaries import class_choices
from toktier.certify.levels import Level
from toktier.certify.suite import SuitePlan, TextSuite, blocks_of
from toktier.program.layout import Conf, TokenFlag

if TYPE_CHECKING:
    from toktier.certify.subject import Subject

EDGES: dict[str, tuple[int, ...]] = {
    "pieces looked up together": (32, 256),  # native/engine/piece_encoder.cpp, `ahead`; lanes/word_lanes.cpp, `block`
    "pieces of a run": (2048,),  # native/engine/word_encoder.h, `full`
    "bytes of a window": (4096,),  # native/engine/split_windows.h, `window_bytes`
    "words merged together": (14, 64),  # native/engine/lanes/merge_lanes.cpp, `few` and `most`
    "boundaries in a lot": (1024,),  # native/engine/splitter.h, `boundary_lot`
    "bytes of cached pieces": (15, 31, 63),  # native/engine/piece_cache.h, PieceKey<2, 4, 8>::longest
    "ids of cached pieces": (3, 4, 8, 16),  # native/engine/word_key.h, `inline_ids`; piece_cache.h, `most_ids`
    "symbols of a small merge": (32, 48),  # lanes/merge_lanes.h, `longest_merged`; kernels/shared/bpe.h, TT_SMALL_PIECE
    "bytes with the interpreter's lock held": (2048,),  # native/bind/bind.h, kReleaseGilFrom
}
KEPT_BYTES = 1 << 20  # native/engine/encoder.cpp, kept_bytes: larger buffers are given back
CACHED_PIECES = 2 << 17  # entries of the largest cache: more distinct pieces push others out
ALIGNMENTS = 64
NEAR_PIECES = 6  # of each length
BLOCK = 300_000  # code points, of which a call counts sixteen

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_WIDE = ("é", "ß", "\u0301", "中", "ｱ", "\u2028", "😀", "𝒳", "\U0010ffff")  # two, three and four bytes


@dataclass(frozen=True, slots=True)
class _Texts:
    texts: list[str]
    blocks: list[tuple[int, int]]


class ScannerSuite(TextSuite):
    name = "scanner"
    meaning = (
        "edges of the engine's loops: pieces around each block and lot, runs of each class and tokens around each "
        "cached length and merge form, pieces that differ little, every ASCII byte and wide characters at each of 64 "
        "alignments; above quick caches that overflow and buffers that are given back"
    )
    version = 3

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        groups = {
            "alignment_texts": _alignments(),
            "run_texts": _runs(subject, seed),
            "piece_count_texts": _piece_counts(),
            "token_length_texts": _token_lengths(subject),
            "text_length_texts": _text_lengths(),
            "near_piece_texts": _near_pieces(subject, seed),
            "cache_texts": _caches(subject, seed) if level is not Level.QUICK else [],
        }
        lists = {name: list(texts) for name, texts in groups.items()}
        texts = list(dict.fromkeys(itertools.chain(*lists.values())))
        facts: dict[str, Any] = {name: len(found) for name, found in lists.items()}
        facts |= {"texts": len(texts), "edges": "; ".join(f"{name}: {edge}" for name, edge in EDGES.items())}
        blocks = blocks_of(texts, BLOCK)
        return SuitePlan(len(blocks), facts, None, _Texts(texts, blocks))

    def texts(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int) -> Iterable[str]:
        kept = plan.payload
        assert isinstance(kept, _Texts)
        begin, end = kept.blocks[block]
        return kept.texts[begin:end]


def _around(edges: Iterable[int], by: int = 1) -> list[int]:
    """Each edge and its neighbours up to `by` + 1 below, which is where a longest of n meets one of n + 1."""
    return sorted({edge + shift for edge in edges for shift in range(-by, by + 2)})


def _alignments() -> Iterator[str]:
    """Every ASCII byte, and wide characters, at every alignment of a 64-byte block, and across its end."""
    for at in range(ALIGNMENTS):
        front = ("ab " * ALIGNMENTS)[:at]
        for byte in range(128):
            yield f"{front}{chr(byte)}cd"
        for wide in _WIDE:
            yield f"{front}{wide}{wide} x{wide}"


def _runs(subject: Subject, seed: int) -> Iterator[str]:
    """Runs of members of each class: of as many characters, and of as many bytes, as each edge has."""
    if subject.boundary is None:
        members = list(map(list, (*_WIDE, "a", " ", "1", ".", "\n")))
    else:
        members = class_choices(subject.boundary, f"scanner {seed}")
    edges = (*EDGES["bytes of cached pieces"], *EDGES["symbols of a small merge"], 127, 255, 1023)
    for character in dict.fromkeys(itertools.chain(*members)):
        width = len(character.encode())
        for length in sorted({*_around(edges), *(n // width for n in _around(edges))}):
            if length > 0:
                yield character * length
                yield f"a{character * length} {character}"


def _piece_counts() -> Iterator[str]:
    """As many small pieces of each kind as blocks and lots hold, and a long piece at each place of a block."""
    (ahead, block), (lot,) = EDGES["pieces looked up together"], EDGES["boundaries in a lot"]
    (run,), (window,) = EDGES["pieces of a run"], EDGES["bytes of a window"]
    for unit in (" a", "1", ".a", " the", "\n", " 1", "é ", "'s", "中 ", "😀 "):
        for count in (*_around((ahead, 2 * ahead, block, 2 * block), 2), *_around((lot, 2 * lot), 5)):
            yield unit * count
            yield unit * count + "  "
    for unit in (" a", "1", "é ", "中 "):  # what is open when a window, or a run of pieces, ends
        for size in (2 * window, 2 * window + run):
            for shift in (-1, 0, 1):
                yield "1" * (shift + 1) + unit * (size // len(unit.encode()))
    long = " " + "straightforwardly" * 5 + "中é😀"
    for count in (ahead, 2 * ahead):
        for place in range(count + 1):
            yield " a" * place + long + " b" * (count - place)


def _token_lengths(subject: Subject) -> Iterator[str]:
    """Tokens whose bytes are as many as an edge has, alone, after a space, twice, and with a byte more."""
    program = subject.program_file
    longest = int.from_bytes(program.section("CONF")[4 * Conf.MAX_PIECE : 4 * Conf.MAX_PIECE + 4], "little")
    starts = memoryview(program.section("RAWO")).cast("I")
    raw, flags = program.section("RAWB"), program.section("TFLG")
    wanted = dict.fromkeys(_around((*EDGES["bytes of cached pieces"], *EDGES["symbols of a small merge"], longest)), 0)
    for i, flag in enumerate(flags):
        size = starts[i + 1] - starts[i]
        if not flag & TokenFlag.MODEL or wanted.get(size, 8) >= 8:
            continue
        try:
            text = bytes(raw[starts[i] : starts[i + 1]]).decode()
        except UnicodeDecodeError:
            continue
        wanted[size] += 1
        yield from (text, f" {text}", text + text, f"{text}x", f"x{text}", text[:-1], f"{text} {text}")


def _text_lengths() -> Iterator[str]:
    (lock,) = EDGES["bytes with the interpreter's lock held"]
    for size in _around((lock, 2 * lock), 2):
        yield ("word " * size)[:size]
        yield ("中é " * size).encode()[:size].decode(errors="ignore")


def _near_pieces(subject: Subject, seed: int) -> Iterator[str]:
    """Pieces of each cached length that differ in one place only, or in their last token, one after the other: a cache
    tells them apart. Of tokens: pieces of many ids are not cached at all."""
    words: dict[int, list[str]] = {}
    for token in subject.spec.model.vocabulary:
        if len(token) >= 2 and token.isascii() and token.isalpha():
            words.setdefault(len(token), []).append(token)
    rng = random.Random(f"scanner near {seed}")
    pools = [pool for size, pool in sorted(words.items()) if size <= 12][-6:]
    endings = [pool for pool in pools if len(pool) > 1]
    for size in range(4, EDGES["bytes of cached pieces"][-1] + 2) if endings else ():
        for _ in range(NEAR_PIECES):
            front = ""
            while len(front) < size:
                front += rng.choice(rng.choice(pools))
            one, other = rng.sample(rng.choice(endings), 2)
            front = front[-size:][: max(0, size - len(one))]
            yield f"{front}{one}\n{front}{other}\n{front}{one}"
    for size in _around(EDGES["bytes of cached pieces"]):
        piece = (_LETTERS * 3)[:size]
        others = [f"{piece[:at]}{'z' if piece[at] != 'z' else 'a'}{piece[at + 1 :]}" for at in range(size)]
        yield "\n".join((piece, *others))
        yield "\n".join((*reversed(others), piece))  # pieces that are new are made together: now they are known


def _caches(subject: Subject, seed: int) -> Iterator[str]:
    """More distinct pieces than any cache holds, then the first of them again; a text whose buffers are given back, and
    a short one after it."""
    rng = random.Random(f"scanner {seed}")
    for length in (4, 20, 40):
        count = CACHED_PIECES if length == 4 else CACHED_PIECES // 16
        words = ["".join(rng.choices(_LETTERS, k=length)) for _ in range(count)]
        yield " ".join(words + words[:8192])  # one text: its pieces meet one set of caches
    yield "The boats, 14 of them. " * (KEPT_BYTES // 23 + 2)
    yield "The boats."
