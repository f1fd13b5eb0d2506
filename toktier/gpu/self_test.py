"""What kernels must show on a device before they serve without evidence: the ids of the CPU engine for built-in texts.

Texts of every tier of merging and of the edges of words, tiles and warps; what a kernel must leave to the CPU; strings
over the classes that the pre-tokenizer tells apart; added tokens. One batch for each mode, so that it costs a few
launches: a hundredth of a second. It finds kernels that a driver or a device runs wrongly, and shows no equality with
the reference: that is what `toktier certify --backend gpu` is for. Not here: when it is run (`toktier.routing`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toktier._native import EncoderBase, EncodingBatch, GpuEngine

WORD, TILE = 32, 4096  # bytes: kernels/device/abi.h, TT_WORD_BYTES and TT_TILE_BYTES
LONGEST = {"thread": 32, "warp": 256, "block": 4096}  # of a piece, by the tier that merges it
CLASS_STRINGS = 4_000  # at most; all up to the length that keeps within
PROSE = (
    "The boats, 14 of them, weren't there; they'll've gone.\r\n\r\n\tfor (i = 0; i < 128; ++i) x[i] += y[i] * 3.5;\n",
    "Ångström, Straße, naïve café. Привет, мир! Ελλάδα 2024. ",
    "中文文本没有空格，也能分开。日本語のテキスト。ภาษาไทยไม่มีวรรค 한국어 ",
    "👨\u200d👩\u200d👧 𝒳𝒴 1️⃣ \U0010ffff \u2028 \u00a0\u3000   \x00\t",
    "e\u0301a\u0323\u0302 \u1112\u1161\u11ab \u0344 ﬁ ① Ａ",
)
UNITS = ("a", " ", "\n", "7", "-", "é", "中", "😀", "'s", "ab ", " \r\n")


def texts(meta: Mapping[str, Any]) -> list[str]:
    """The texts, the same for the same program. `meta`: its META document."""
    return list(dict.fromkeys(["", *_prose(), *_runs(), *_long_pieces(), *_added(meta), *_classes(meta)]))


def _prose() -> Iterator[str]:
    whole = "".join(PROSE)
    yield from PROSE
    yield whole * 40
    for end in (1, WORD - 1, WORD, WORD + 1, TILE - 1, TILE, TILE + 1, 3 * TILE):
        yield (whole * (end // len(whole) + 1))[:end]


def _runs() -> Iterator[str]:
    """One unit again and again, across the edges of words, warps and tiles: no place in them is like the start."""
    for unit in UNITS:
        for size in (WORD - 1, WORD, WORD + 1, 8 * WORD, TILE - 1, TILE + WORD):
            yield unit * (size // len(unit.encode()) + 1)


def _long_pieces() -> Iterator[str]:
    """Letters that few merges join, around the longest piece of every tier, and one beyond the last."""
    rng = random.Random("long pieces")
    for longest in LONGEST.values():
        for size in (longest - 1, longest, longest + 1):
            yield "".join(rng.choices("etaoinshrdlu", k=size))
            yield "".join(rng.choices("zqxjkv", k=size)) + " end"


def _added(meta: Mapping[str, Any]) -> Iterator[str]:
    contents = [str(token["content"]) for token in meta["special_tokens"]][:16]
    for content in contents:
        yield f"{content}a {content}{content} b{content}\n"
        yield "x" * (WORD - 1) + content + "y" * TILE + content
    yield " ".join(contents)


def _classes(meta: Mapping[str, Any]) -> Iterator[str]:
    """Every string over representatives of the classes, up to the length that keeps their number in bounds."""
    boundary = meta.get("boundary")
    if not boundary:
        return
    members = [chr(point) for point in boundary["representatives"] if not 0xD800 <= point <= 0xDFFF]
    count, length = 0, 1
    while count + len(members) ** length <= CLASS_STRINGS:
        count += len(members) ** length
        length += 1
    for size in range(1, length):
        yield from map("".join, itertools.product(members, repeat=size))
    rng = random.Random("classes")
    for _ in range(min(CLASS_STRINGS - count, 500)):
        yield "".join(rng.choices(members, k=rng.randint(length, 3 * WORD)))


def self_test(engine: GpuEngine, native: EncoderBase, meta: Mapping[str, Any]) -> str | None:
    """None, or the first difference, a clause. `native`: the CPU engine on the same program; `meta`: its META
    document."""
    given = texts(meta)
    for add_special_tokens, plain in ((False, False), (True, False), (False, True)):
        before = engine.counters()["device_texts"]
        got = engine.encode_batch(given, add_special_tokens, plain)
        problem = difference(given, got, native.encode_batch(given, add_special_tokens, plain=plain))
        if problem is not None:
            return problem
        served = engine.counters()["device_texts"] - before
        if got.backend != "gpu" or served < len(given) // 2:
            fault = engine.counters()["last_fault"]
            why = "" if fault is None else f": {fault['message']}"
            return f"the device served {served} of {len(given)} texts{why}"
    return None


def difference(given: Sequence[str], got: EncodingBatch, expected: EncodingBatch) -> str | None:
    """The first text whose ids differ, by its length and beginning; None where all agree."""
    if bytes(got.ids) == bytes(expected.ids) and bytes(got.row_splits) == bytes(expected.row_splits):
        return None
    for text, mine, right in zip(given, got, expected, strict=True):
        if mine != right:
            place = next((i for i, (a, b) in enumerate(zip(mine, right, strict=False)) if a != b), len(right))
            return (
                f"{len(text.encode()):,} bytes beginning with {text[:24]!a}: id {place} differs from the CPU engine's"
            )
    return "the rows of a batch lie elsewhere than the CPU engine's"
