"""The numbers at which loops of the engine begin anew, and texts that lie across them.

None of them may show in an id. A test holds them against the sources; other engines bring edges of their own, of which
the powers of two and 64-byte alignments are the likely ones. Texts are made for every edge, not for what this engine
does there: each kind of character straddles it at every place. Not here: what is compared (`suites/scanner`), the
texts that need a program's tables.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

EDGES: dict[str, tuple[int, ...]] = {
    "bytes of a block": (64, 256),  # lanes/scan_lanes.cpp, `block` and four of them; split_windows.h, words of bits
    "bytes of a window": (4096,),  # native/engine/split_windows.h, `window_bytes`
    "units of a register": (4, 8, 16, 32),  # lanes/transcode_lanes.cpp: four-, two- and one-byte units, by level
    # native/engine/piece_encoder.cpp, `ahead`; word_encoder.h, `few`; lanes/word_lanes.cpp, `block`
    "pieces looked up together": (32, 64, 256),
    "pieces of a run": (2048,),  # native/engine/word_encoder.h, `full`
    "words made together": (64,),  # lanes/long_lanes.cpp, `block`; word_encoder.h, `batch`
    "words merged together": (6, 14, 16, 32, 64),  # lanes/merge_lanes.cpp: `lanes`, `few`, two groups of 16, `most`
    "boundaries in a lot": (1024,),  # native/engine/splitter.h, `boundary_lot`
    "bytes of cached pieces": (15, 31, 63),  # native/engine/piece_cache.h, PieceKey<2, 4, 8>::longest; long_key.h
    "bytes of a remembered word": (4096,),  # native/engine/long_words.h, `longest`
    # native/engine/word_key.h, `inline_ids`; long_key.h, `most_long_ids`; piece_cache.h, `most_ids`
    "ids of cached pieces": (3, 7, 4, 8, 16),
    # lanes/merge_lanes.h, `longest_merged`; kernels/shared/bpe.h, TT_SMALL_PIECE; long_piece.h, `shortest`, twice that
    "symbols of a small merge": (32, 48, 96),
    "bytes lowered together": (256,),  # native/engine/normalizer.cpp, `lowered`
    "bytes with the interpreter's lock held": (2048,),  # native/bind/bind.h, kReleaseGilFrom
}
KEPT_BYTES = 1 << 20  # native/engine/encoder.cpp, kept_bytes: larger buffers are given back
FIRST_WORDS = 2 << 15  # words that the cache begins with, word_cache.h, first_lines: more make it grow
CACHED_WORDS = 2 << 17  # and the most it has, most_lines: more push others out
RING_IDS = 1 << 17  # word_cache.h, ring_size: ids of words that have more than an entry holds
LONG_PAIRS = 1 << 12  # native/engine/long_words.h, places in pairs
LONG_TEXT = 1 << 18  # native/bind/batch_call.h, kLongText: from here on threads share one text
LOOKS = 4096  # native/engine/cuts.cpp, most_looks: a share that finds no cut so far is left to the one before

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WIDE = ("é", "ß", "\u0301", "中", "ｱ", "\u2028", "😀", "𝒳", "\U0010ffff")  # two, three and four bytes
# What decides something: letters, white space that looks ahead, contractions, what composes, joins or is part of both.
STRADDLERS = (
    *("a", "Z", " ", "   ", "\n", "\r\n", "\n   \n", "\n   x", "\n\t  \r  b", "\t", "1", "123", ".", "..!"),
    *("'s", "'ll", "-", "p~", "\x00"),
    *("é", "e\u0301", "a\u0323\u0302", "ſ", "\u0301", "\u0344", "\u00a0", "٣", "中", "中文", "ｱ", "\u2028", "\u3000"),
    *("ก็", "한", "\u1112\u1161\u11ab", "क\u093c", "😀", "👨\u200d👩", "𝒳", "\U0001d15e", "\U0010ffff"),
)  # fmt: skip
FILLERS = ("the cat ", "é中 x")  # of windows that are ASCII, and of others
# Stretches of a long text.
_STRETCHES: tuple[Sequence[str], ...] = (
    ("The boats, 14 of them. ", "It wasn't; ", "  (see 3.1)\n", "straightforwardly ", "\r\n\r\n\t", "they'll've "),
    ("中文文本没有空格", "，", "日本語のテキスト", "。\n", "ภาษาไทยไม่มีวรรค", "한국어 "),
    ("Ångström e\u0301a\u0323\u0302 ", "naïve café ", "\u1112\u1161\u11ab", "Straße, ", "\u0344", "Привет мир "),
    ("😀😀", "👨\u200d👩\u200d👧 ", "𝒳𝒴", " emoji ", "\U0001d15e", "1️⃣"),
)


def around(edges: Iterable[int], by: int = 1) -> list[int]:
    """Each edge and its neighbours up to `by` + 1 below, which is where a longest of n meets one of n + 1."""
    return sorted({edge + shift for edge in edges for shift in range(-by, by + 2)})


def filled(text: str, filler: str, size: int) -> str:
    """`text`, then filler, `size` bytes of UTF-8 in all."""
    missing = size - len(text.encode())
    assert missing >= 0
    whole = (filler * (missing // len(filler.encode()) + 1)).encode()[:missing].decode(errors="ignore")
    return text + whole + "x" * (missing - len(whole.encode()))


def straddles(texts: Iterable[str], periods: Iterable[int]) -> Iterator[str]:
    """Each of the texts across the edges of blocks of each size: it begins up to its length and three bytes before the
    edge, and up to three behind it, one block after the other."""
    kept = list(texts)
    for period in periods:
        for text in kept:
            length = len(text.encode())
            earliest = max(3, length) if period < EDGES["bytes of a window"][0] else 3
            step = period * (1 + length // period)  # one that is longer than a block is at every second or third
            for filler in FILLERS:
                made = ""
                for k, shift in enumerate(range(-earliest, 4)):
                    made = filled(made, filler, step * (k + 1) + shift) + text
                yield made
                yield filled(made, filler, step * (earliest + 5) + 7)


def units() -> Iterator[str]:
    """Strings of each kind of storage, the widest character near the end of a register, and in all of it."""
    for wide in ("é", "中", "😀"):
        for length in around((*EDGES["units of a register"], 64), 2):
            yield wide * length
            for place in range(max(0, length - 4), length):
                yield ("ab " * length)[:place] + wide + ("cd " * length)[: length - place - 1]
                yield ("aé" if wide != "é" else "a ") * place + wide + "é" * (length - place - 1)


def random_words(rng: random.Random, count: int, length: int) -> list[str]:
    return ["".join(rng.choices(LETTERS, k=length)) for _ in range(count)]


def batches(rng: random.Random) -> Iterator[str]:
    """As many new words of each length as are made and merged together; again, and among others, in the same text."""
    edges = (16, *EDGES["words made together"], *EDGES["words merged together"], 128)
    for count in around(edges, 2):
        for length in (9, 14, 22):
            yield " ".join(random_words(rng, max(1, count), length))
        mixed = [random_words(rng, 1, rng.randint(2, 33))[0] for _ in range(max(1, count))]
        yield " ".join(mixed)
        yield "\n".join((*mixed, *mixed[::-1], *mixed))
    for length in (*range(1, 50), *around((63, 64, 127, *EDGES["bytes of a remembered word"]))):
        words = random_words(rng, 17 if length < 100 else 2, length)
        yield " ".join((*words, *words))
        yield "\n".join("é" + word[2:] for word in words if len(word) > 2)


def crowds(rng: random.Random) -> Iterator[str]:
    """Words that agree in all but the first bytes, or the last ones: so many that two of them share each place that a
    hash may give them."""
    for count, front, back in ((4096, 7, 5), (512, 36, 8)):
        same = random_words(rng, 2, max(front, back))
        yield " ".join(f"{same[0][:front]}{word}" for word in random_words(rng, count, back))
        yield " ".join(f"{word}{same[1][:front]}" for word in random_words(rng, count, back))


def overflows(rng: random.Random) -> Iterator[str]:
    """So many words that the first cache has to give up a third of them and grows, and more ids than its ring has room
    for; then the first of them again. None is so long that threads share it, each with a cache of its own."""
    texts = [random_words(rng, FIRST_WORDS // 4, 12) for _ in range(7)]
    yield from (" ".join(words) for words in texts)
    yield " ".join(texts[0][:4096])


def long_texts(rng: random.Random, tokens: Sequence[str]) -> Iterator[str]:
    """Texts that threads share, of each kind of storage; dense with added tokens; without cuts where shares end."""
    for stretches in (*_STRETCHES, (*_STRETCHES[0], *tokens) if tokens else ("1", " ", "\n")):
        widest = max(max(stretch) for stretch in stretches)
        unit = 1 if widest <= "\xff" else 2 if widest <= "\uffff" else 4  # bytes of a character in a str
        made = ""
        while len(made) * unit < LONG_TEXT:
            made += "".join(rng.choices(stretches, k=1000))
        yield made[: LONG_TEXT // unit + 1]
    words = ("The boats, 14 of them. " * (LONG_TEXT // 23 + 1))[:LONG_TEXT]
    for share in (LONG_TEXT // 4, LONG_TEXT // 2):
        words = words[: share - 16] + "a" * (LOOKS + 64) + words[share + LOOKS + 48 :]
    yield words[: LONG_TEXT - 1]
    yield words


# fmt: off
BROKEN = (  # UTF-8 that is none: broken off, out of place, too long, a surrogate, beyond the last code point
    b"\xc3", b"\xe4\xb8", b"\xf0\x9f\x98", b"\xf0\x9f", b"\x80", b"\xe4\xb8\xad\x80", b"\xc0\xaf", b"\xe0\x80\xaf",
    b"\xed\xa0\x80", b"\xf0\x80\x80\xaf", b"\xf4\x90\x80\x80", b"\xff",
)
# fmt: on


def broken_bytes() -> Iterator[bytes]:
    """Each of them across the edge of a block of bytes, in a text of ASCII and in others."""
    (block, _) = EDGES["bytes of a block"]
    for filler in FILLERS:
        for broken in BROKEN:
            for shift in range(-4, 2):
                for edge in (block, 2 * block, 16 * block):
                    front = filled("", filler, edge + shift).encode()
                    yield front + broken + filled("", "abc ", 2 * block + 5).encode()
                yield front + broken


def broken_strings() -> Iterator[tuple[str, int]]:
    """Lone surrogates at each place of a register, in storage of two and of four bytes a unit, and where they are."""
    for place in (*range(34), *around((64, 128))):
        for other in ("", "😀"):
            yield ("ab中" * 64)[:place] + "\ud83d" + "cd" * 20 + other, place
