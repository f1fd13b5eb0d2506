"""Edges of how the engine works through a text: registers, blocks, windows, batches of words, caches, merge forms,
threads.

The numbers, and the texts that need nothing of a tokenizer, are `certify/engine_edges`. Texts are compared like those
of every suite; the last block asks further calls about the edges that only they have: bytes in place of a str, texts
that threads share. Not here: what the tables say (`automaton`), vocabulary (`vocabulary`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toktier.certify.boundaries import check_boundaries, class_choices, why_not
from toktier.certify.engine_edges import (
    CACHED_WORDS,
    EDGES,
    KEPT_BYTES,
    LETTERS,
    STRADDLERS,
    WIDE,
    around,
    batches,
    broken_bytes,
    broken_strings,
    crowds,
    long_texts,
    overflows,
    random_words,
    straddles,
    units,
)
from toktier.certify.levels import Level
from toktier.certify.other_calls import check_batch, check_count, named
from toktier.certify.suite import SuitePlan, TextSuite, blocks_of
from toktier.errors import InvalidText
from toktier.program.layout import Conf, TokenFlag
from toktier.program.normalizer import UNICODE_FORMS
from toktier.program.unicode import normalization

if TYPE_CHECKING:
    from toktier.certify.subject import Subject
    from toktier.certify.tally import Tally

ALIGNMENTS = 64
NEAR_PIECES = 6  # of each length
MOST_WHOLE = 300  # tokens that no merges make
BLOCK = 300_000  # code points, of which a call counts sixteen
WORKERS = (1, 2, 3)  # threads that share the long texts


@dataclass(frozen=True, slots=True)
class _Texts:
    texts: list[str]
    blocks: list[tuple[int, int]]
    long: list[str]


class ScannerSuite(TextSuite):
    name = "scanner"
    meaning = (
        "edges of the engine's loops: every kind of character and added tokens across registers, blocks and windows, "
        "pieces around each batch, runs of each class and tokens around each cached length and merge form, words that "
        "differ little, caches that grow and overflow, texts given as bytes, long texts shared among threads; above "
        "quick the largest caches and buffers that are given back"
    )
    version = 3

    def plan(self, subject: Subject, level: Level, seed: int) -> SuitePlan:
        rng = random.Random(f"scanner {seed}")
        tokens = _added_tokens(subject)
        straddling = (*STRADDLERS, *tokens)
        groups: dict[str, Iterable[str]] = {
            "alignment_texts": _alignments(),
            "straddling_texts": straddles(straddling, (*EDGES["bytes of a block"], *EDGES["bytes of a window"])),
            "unit_texts": units(),
            "run_texts": _runs(subject, seed),
            "piece_count_texts": _piece_counts(),
            "token_length_texts": _token_lengths(subject),
            "whole_token_texts": _whole_tokens(subject),
            "mark_texts": _mark_pairs(subject),
            "text_length_texts": _text_lengths(),
            "near_piece_texts": _near_pieces(subject, seed),
            "batch_texts": batches(rng),
            "crowd_texts": crowds(rng),
            "overflow_texts": overflows(rng),
            "long_texts": long_texts(rng, tokens),
            "cache_texts": _caches(subject, seed) if level is not Level.QUICK else [],
        }
        lists = {name: list(texts) for name, texts in groups.items()}
        texts = list(dict.fromkeys(itertools.chain(*lists.values())))
        facts: dict[str, Any] = {name: len(found) for name, found in lists.items()}
        facts |= {"texts": len(texts), "edges": "; ".join(f"{name}: {edge}" for name, edge in EDGES.items())}
        blocks = blocks_of(texts, BLOCK)
        return SuitePlan(len(blocks) + 1, facts, None, _Texts(texts, blocks, lists["long_texts"]))

    def texts(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int) -> Iterable[str]:
        kept = plan.payload
        assert isinstance(kept, _Texts)
        begin, end = kept.blocks[block]
        return kept.texts[begin:end]

    def run(self, subject: Subject, level: Level, seed: int, plan: SuitePlan, block: int, tally: Tally) -> None:
        kept = plan.payload
        assert isinstance(kept, _Texts)
        if block < len(kept.blocks):
            super().run(subject, level, seed, plan, block, tally)
            return
        if why_not(subject) is None:  # ids may hide a piece
            check_boundaries(
                tally, straddles(STRADDLERS, (EDGES["bytes of a block"][0], *EDGES["bytes of a window"])), both=False
            )
        _check_bytes(subject, tally)
        for workers in WORKERS:
            check_batch(tally, kept.long, workers=workers)
        check_batch(tally, ["a", kept.long[0], "", kept.long[1]], add_special_tokens=True)
        for text in kept.long:
            check_count(tally, text, subject.encode_ids(text).ids)


def _check_bytes(subject: Subject, tally: Tally) -> None:
    """Bytes are encoded as the text that they are; what is none is refused where it breaks."""
    for text in straddles(STRADDLERS, EDGES["bytes of a block"][:1]):
        got, expected = subject.tokenizer.encode(text.encode()), subject.tokenizer.encode(text)
        if got.backend != subject.served_as or expected.backend != subject.served_as:
            tally.routed()
            continue
        tally.check("bytes", named(text), got.ids, expected.ids)
    for data in broken_bytes():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            tally.check("malformed bytes", data.hex(), _refusal(subject, data), error.start)
    for surrogate, place in broken_strings():
        tally.check("lone surrogate", ascii(surrogate), _refusal(subject, surrogate), place)


def _refusal(subject: Subject, text: str | bytes) -> Any:
    """Where the text is refused."""
    try:
        return len(subject.tokenizer.encode(text).ids)
    except InvalidText as error:
        return error.details["position"]


def _added_tokens(subject: Subject) -> list[str]:
    """Some that begin differently, the longest of each."""
    contents = sorted((placed.token.content for placed in subject.spec.added_tokens), key=len)
    kept = {content[0]: content for content in contents if 0 < len(content) <= 40}
    return sorted(kept.values())[:6]


def _alignments() -> Iterator[str]:
    """Every ASCII byte, and wide characters, at every alignment of a 64-byte block, and across its end."""
    for at in range(ALIGNMENTS):
        front = ("ab " * ALIGNMENTS)[:at]
        for byte in range(128):
            yield f"{front}{chr(byte)}cd"
        for wide in WIDE:
            yield f"{front}{wide}{wide} x{wide}"


def _runs(subject: Subject, seed: int) -> Iterator[str]:
    """Runs of members of each class: of as many characters, and of as many bytes, as each edge has."""
    if subject.boundary is None:
        members = list(map(list, (*WIDE, "a", " ", "1", ".", "\n")))
    else:
        members = class_choices(subject.boundary, f"scanner {seed}")
    small = (*EDGES["bytes of cached pieces"], *EDGES["symbols of a small merge"])
    edges = (*small, 127, *EDGES["bytes lowered together"], 1023)
    for character in dict.fromkeys(itertools.chain(*members)):
        width = len(character.encode())
        for length in sorted({*around(edges), *(n // width for n in around(edges))}):
            if length > 0:
                yield character * length
                yield f"a{character * length} {character}"


def _piece_counts() -> Iterator[str]:
    """As many small pieces of each kind as blocks and lots hold, and a long piece at each place of a block."""
    (ahead, _, block), (lot,) = EDGES["pieces looked up together"], EDGES["boundaries in a lot"]
    (run,), (window,) = EDGES["pieces of a run"], EDGES["bytes of a window"]
    for unit in (" a", "1", ".a", " the", "\n", " 1", "é ", "'s", "中 ", "😀 "):
        for count in (*around((ahead, 2 * ahead, block, 2 * block), 2), *around((lot, 2 * lot), 5)):
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
    wanted = dict.fromkeys(around((*EDGES["bytes of cached pieces"], *EDGES["symbols of a small merge"], longest)), 0)
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


def _whole_tokens(subject: Subject) -> Iterator[str]:
    """Tokens that no merges make: whole, and as a part of a piece before and behind a character that joins nothing."""
    starts = memoryview(subject.program_file.section("RAWO")).cast("I")
    raw, flags = subject.program_file.section("RAWB"), subject.program_file.section("TFLG")
    found = 0
    for i, flag in enumerate(flags):
        if not flag & TokenFlag.MODEL or flag & TokenFlag.REACHABLE or found == MOST_WHOLE:
            continue
        text = bytes(raw[starts[i] : starts[i + 1]]).decode(errors="ignore")
        found += 1
        yield from (text, f"{text}中 {text}𝒳{text} 中{text}", f"{text}ก{text}é")


def _mark_pairs(subject: Subject) -> Iterator[str]:
    """Marks that change places, both with the same second byte: what looks for them by bytes misses both or none."""
    forms = {step.op: UNICODE_FORMS[step.op] for step in subject.spec.normalizer if step.op in UNICODE_FORMS}
    for form in forms.values():
        groups: dict[int, list[tuple[int, int]]] = {}
        for mark, combining in sorted(normalization(form).ccc.items()):
            groups.setdefault(chr(mark).encode()[1], []).append((combining, mark))
        for group in groups.values():
            (_, last), *_ = sorted(group, reverse=True)
            yield from (f"ab{chr(last)}{chr(mark)} cd" for _, mark in group)


def _text_lengths() -> Iterator[str]:
    (lock,) = EDGES["bytes with the interpreter's lock held"]
    for size in around((lock, 2 * lock), 2):
        yield ("word " * size)[:size]
        yield ("中é " * size).encode()[:size].decode(errors="ignore")


def _near_pieces(subject: Subject, seed: int) -> Iterator[str]:
    """Pieces of each cached length that differ in one place only, or in their last token: a cache tells them apart. Of
    tokens: pieces of many ids are not cached at all. In two texts: what comes together is looked up before any of it is
    remembered."""
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
            yield f"{front}{other}\n{front}{one}"
    for size in around(EDGES["bytes of cached pieces"]):
        piece = (LETTERS * 3)[:size]
        others = [f"{piece[:at]}{'z' if piece[at] != 'z' else 'a'}{piece[at + 1 :]}" for at in range(size)]
        yield "\n".join((piece, *others))
        yield "\n".join((*reversed(others), piece))


def _caches(subject: Subject, seed: int) -> Iterator[str]:
    """More distinct pieces than any cache holds, then the first of them again; a text whose buffers are given back, and
    a short one after it."""
    rng = random.Random(f"scanner caches {seed}")
    for length in (4, 20, 40):
        words = random_words(rng, CACHED_WORDS if length == 4 else CACHED_WORDS // 16, length)
        yield " ".join(words + words[:8192])  # one text: its pieces meet one set of caches
    yield "The boats, 14 of them. " * (KEPT_BYTES // 23 + 2)
    yield "The boats."
