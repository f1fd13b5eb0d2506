"""A tokenizer and the reference for the same file, to hold the cuts of texts against; and texts that try to break them.

What a cut promises is the encoding before the post-processor, so the references here have none, and no truncation or
padding. Nothing here decides where a cut is.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer

from tests.support import tokenizer_maker as maker
from toktier import _native
from toktier.program.compile import compile_spec
from toktier.program.layout import CutKind
from toktier.program.text_cuts import TextCuts
from toktier.program.tokenizer_json import read_tokenizer

Row = tuple[list[int], list[tuple[int, int]]]
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
# Contents that overlap each other, white space, marks and what normalizers make of them.
CONTENTS = (
    "<tok>", "<tok", "tok>", "word", "Word", "it's", "<|x|>", " a", "a ", "q ", "b c", "\n", "  ", ">", "1",
    "ab", "xy", "é", "e\u0301", "\u0301", "ﬁ", "的", "▁▁",
)  # fmt: skip

# What comes to lie beside a mark, is joined with what was apart, becomes white space or a word character, or vanishes.
REPLACEMENTS = (
    ("\u0301", ""), ("1", "\u0301"), (".", " "), (" ", "▁"), (" ", ""), ("ab", "b"), ("aa", "a"), ("e", "é"),
    ("\n", "x"), ("b", "\n"), ("'", "s"), (">", "> "), ("T", "t"), ("l", "L"), ("-", "\u1161"), ("中", "文"),
)  # fmt: skip


@dataclass
class Tally:
    """What was checked: cuts by kind (`+` with continued parts), texts, those of them on which the reference fails."""

    kinds: Counter[str] = field(default_factory=Counter)
    texts: int = 0
    failed: int = 0

    @property
    def cuts(self) -> int:
        return self.kinds.total()


class CutCase:
    """Raises what the compiler raises."""

    def __init__(self, document: maker.Document) -> None:
        document = document | {"post_processor": None, "truncation": None, "padding": None}
        data = maker.encoded(document)
        self.spec = read_tokenizer(data)
        self.image = compile_spec(self.spec)
        self.program = _native.Program(self.image)
        self.document = document
        self.added = [token["content"] for token in document["added_tokens"]]
        self.reference = Tokenizer.from_buffer(data)
        self.added_ids = frozenset(placed.id for placed in self.spec.added_tokens)

    @cached_property
    def oracle(self) -> TextCuts:
        return TextCuts(self.spec, self.image)

    @cached_property
    def unprefixed(self) -> Tokenizer:
        """The reference without prefix space and Prepend: what parts after the first are encoded with."""
        document = _without_prefix(self.document)
        if all(document[part] == self.document[part] for part in ("normalizer", "pre_tokenizer")):
            return self.reference
        return Tokenizer.from_str(json.dumps(document))

    def check(self, text: str, tally: Tally, *, plain: bool = False) -> None:
        """The reference gives for the sides of every cut, and for all parts at once, what it gives for the whole."""
        tally.texts += 1
        positions, kinds = self.cuts(text)
        if not positions:
            return
        self.reference.encode_special_tokens = plain
        try:
            self._check_sides(text, positions, kinds, tally, plain)
        finally:
            self.reference.encode_special_tokens = False

    def _check_sides(self, text: str, positions: list[int], kinds: bytes, tally: Tally, plain: bool) -> None:
        reference = self.reference
        whole = row(reference, text)
        if whole is None:
            tally.failed += 1
            return
        for position, kind in zip(positions, kinds, strict=True):
            sides = joined(reference, reference, text, [position])
            assert sides == whole, (ascii(text), position, CutKind(kind), plain, sides, whole)
            tally.kinds[CutKind(kind).name] += 1
        assert joined(reference, reference, text, positions) == whole, (ascii(text), positions)

    def check_continued(self, text: str, tally: Tally) -> None:
        """The same for parts without prefix. Only up to the next added token: the segments behind it have one again."""
        tally.texts += 1
        reference = self.reference
        positions, kinds = self.cuts(text, continued=True)
        whole = row(reference, text) if positions else None
        if whole is None:
            tally.failed += bool(positions)
            return
        kept = []
        for position, kind in zip(positions, kinds, strict=True):
            if self._matches(whole, position) or self._matches(row(self.unprefixed, text[position:]), 0):
                continue
            kept.append(position)
            sides = joined(reference, self.unprefixed, text, [position])
            assert sides == whole, (ascii(text), position, CutKind(kind), "continued", sides, whole)
            tally.kinds[CutKind(kind).name + "+"] += 1
        if kept:
            assert joined(reference, self.unprefixed, text, kept) == whole, (ascii(text), kept)

    def _matches(self, encoding: Row | None, position: int) -> bool:
        """Whether an added token may begin there or behind it."""
        if encoding is None:
            return True
        return any(i in self.added_ids and begin >= position for i, (begin, _) in zip(*encoding, strict=True))

    def cuts(self, text: str, *, continued: bool = False) -> tuple[list[int], bytes]:
        """Positions in characters, and kinds."""
        positions, kinds = self.program.cuts(text, continued)
        index = {}
        at = 0
        for i, character in enumerate(text):
            index[at] = i
            at += len(character.encode())
        return [index[p] for p in positions], kinds


def row(reference: Tokenizer, text: str) -> Row | None:
    """None where the reference fails: its panics are no Exception."""
    try:
        encoding = reference.encode(text, add_special_tokens=False)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return None
    return encoding.ids, encoding.offsets


def joined(first: Tokenizer, others: Tokenizer, text: str, positions: list[int]) -> Row | None:
    ids: list[int] = []
    offsets: list[tuple[int, int]] = []
    bars = [0, *positions, len(text)]
    for k in range(len(bars) - 1):
        part = row(others if k else first, text[bars[k] : bars[k + 1]])
        if part is None:
            return None
        ids += part[0]
        offsets += [(a + bars[k], b + bars[k]) for a, b in part[1]]
    return ids, offsets


def _without_prefix(node: Any) -> Any:
    if isinstance(node, list):
        return [
            _without_prefix(item) for item in node if not (isinstance(item, dict) and item.get("type") == "Prepend")
        ]
    if not isinstance(node, dict):
        return node
    result = {key: _without_prefix(value) for key, value in node.items() if key != "vocab" and key != "merges"}
    result |= {key: node[key] for key in ("vocab", "merges") if key in node}
    if isinstance(result.get("normalizer"), dict) and result["normalizer"].get("type") == "Prepend":
        result["normalizer"] = None
    if result.get("type") == "ByteLevel":
        result["add_prefix_space"] = False
    return result


def random_case(seed: int) -> CutCase:
    """A random tokenizer with many added tokens of all flags, beyond those that its document has."""
    rng = random.Random(seed)
    document = maker.random_document(seed)
    taken = {token["content"] for token in document["added_tokens"]}
    for content in rng.sample(CONTENTS, rng.choice((0, 2, 6))):
        if content not in taken:
            document["added_tokens"].append(maker.added(content, **{name: rng.random() < 0.35 for name in FLAGS}))
    if rng.random() < 0.3:
        chosen = rng.sample(REPLACEMENTS, rng.randint(1, 3))
        steps: list[Any] = [
            {"type": "Replace", "pattern": {"String": text}, "content": content} for text, content in chosen
        ]
        if document["normalizer"] is not None:
            steps.insert(rng.randint(0, len(steps)), document["normalizer"])
        document["normalizer"] = {"type": "Sequence", "normalizers": steps}
    return CutCase(document)


def hostile_text(case: CutCase, rng: random.Random, most: int = 12) -> str:
    """Whole added tokens, their beginnings and ends, runs, and what normalizers and patterns tell apart."""
    parts: list[str] = []
    for _ in range(rng.randint(2, most)):
        choice = rng.random()
        if case.added and choice < 0.3:
            content = rng.choice(case.added)
            low, high = sorted(rng.choices(range(len(content) + 1), k=2))
            some = rng.choice((content, content, content[low:], content[:high], content.swapcase()))
            parts.append(rng.choice(("", "", "  ", "\n")) + some + rng.choice(("", "", "  ", "e")))
        elif choice < 0.4:
            parts.append(rng.choice(" \n\tab1.,é中") * rng.choice((2, 3, 7)))
        elif choice < 0.6:
            parts.append(rng.choice(("hello", "The", "word", "in", "it's", "1234", "über", "日本", "end.", "(x)")))
        else:
            parts.append(rng.choice(maker.HOSTILE))
    return "".join(parts)
