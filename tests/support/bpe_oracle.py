"""Slow, plain byte-pair encoding and the inputs of `_native.build_bpe`: what the native tables are compared with.

Written from docs/reference-semantics.md, symbol by symbol. Not the compiler: it reads only the model of files
that tests make or ship.
"""

from __future__ import annotations

import itertools
import json
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NONE = 0xFFFFFFFF
Pair = tuple[str, str]


def byte_alphabet() -> dict[str, int]:
    """Character of the byte-level alphabet → byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


ALPHABET = byte_alphabet()
TO_CHARACTER = {b: c for c, b in ALPHABET.items()}


@dataclass(frozen=True)
class Model:
    """A BPE model as the file writes it; `merges` in file order, a pair listed twice counts at its last place."""

    vocab: dict[str, int]
    merges: Sequence[Pair]
    byte_level: bool = False
    unk: str | None = None
    fuse_unk: bool = False
    byte_fallback: bool = False
    ignore_merges: bool = False
    rank: dict[Pair, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank", {pair: place for place, pair in enumerate(self.merges)})

    @property
    def rules(self) -> list[Pair]:
        """Pairs by rank, each once."""
        return sorted(self.rank, key=self.rank.__getitem__)

    def symbols(self, piece: str) -> list[str]:
        """Initial symbols of a piece (of mapped characters for a byte-level model)."""
        out: list[str] = []
        pending = 0
        for character in piece:
            if character in self.vocab:
                out += [self.unk or ""] * pending + [character]
                pending = 0
                continue
            fallback = [f"<0x{b:02X}>" for b in character.encode()] if self.byte_fallback else []
            if fallback and all(token in self.vocab for token in fallback):
                out += fallback
            elif self.unk is not None:
                if pending and not self.fuse_unk:
                    out.append(self.unk)
                pending = 1
        return out + [self.unk or ""] * pending

    def encode(self, piece: str, fired: set[Pair] | None = None) -> list[int]:
        """Ids of a piece; adds the rules that fired to `fired`."""
        if self.ignore_merges and piece in self.vocab:
            return [self.vocab[piece]]
        symbols = self.symbols(piece)
        while True:
            pairs = [(self.rank[p], i) for i, p in enumerate(itertools.pairwise(symbols)) if p in self.rank]
            if not pairs:
                return [self.vocab[s] for s in symbols]
            _, i = min(pairs)
            if fired is not None:
                fired.add((symbols[i], symbols[i + 1]))
            symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]

    def with_rules(self, rules: Iterable[Pair]) -> Model:
        return Model(
            self.vocab, list(rules), self.byte_level, self.unk, self.fuse_unk, self.byte_fallback, self.ignore_merges
        )


def model_of(document: dict[str, Any]) -> Model:
    """The model of a tokenizer.json."""
    model = document["model"]
    merges: list[Pair] = []
    for rule in model["merges"]:
        left, right = rule.split(" ") if isinstance(rule, str) else rule
        merges.append((left, right))
    return Model(
        vocab=model["vocab"],
        merges=merges,
        byte_level='"ByteLevel"' in json.dumps(document.get("pre_tokenizer")),
        unk=model.get("unk_token"),
        fuse_unk=bool(model.get("fuse_unk")),
        byte_fallback=bool(model.get("byte_fallback")),
        ignore_merges=bool(model.get("ignore_merges")),
    )


def raw_of(model: Model, token: str) -> bytes:
    """What a piece must read to be the token; empty where no piece can."""
    if not model.byte_level:
        return token.encode()
    return bytes(ALPHABET[c] for c in token) if all(c in ALPHABET for c in token) else b""


def table_inputs(model: Model, added: Iterable[dict[str, Any]] = ()) -> dict[str, Any]:
    """Keyword arguments of `_native.build_bpe`. `added`: members of `added_tokens`, ids as the file says."""
    added = list(added)
    ids = [*model.vocab.values(), *(int(token["id"]) for token in added)]
    size = max(ids, default=-1) + 1
    strings, raw, flags = [b""] * size, [b""] * size, bytearray(size)
    for token, i in model.vocab.items():
        strings[i], raw[i], flags[i] = token.encode(), raw_of(model, token), 3
    for entry in added:
        i = model.vocab.get(entry["content"], entry["id"])
        strings[i] = entry["content"].encode()
        flags[i] |= 5 | (8 if entry["special"] else 0)
    v = model.vocab
    if model.byte_level:
        initial = array("I", (v.get(TO_CHARACTER[b], NONE) for b in range(256)))
    else:
        initial = array("I", (x for token, i in v.items() if len(token) == 1 for x in (ord(token), i)))
    return {
        "raw": raw,
        "strings": strings,
        "flags": bytes(flags),
        "merges": array("I", (x for a, b in model.rules for x in (v[a], v[b], v[a + b]))),
        "byte_level": model.byte_level,
        "initial": initial,
        "byte_fallback": array("I", (v.get(f"<0x{b:02X}>", NONE) for b in range(256) if model.byte_fallback)),
        "ignore_merges": model.ignore_merges,
        "unk_id": None if model.unk is None else v[model.unk],
    }


_MASK = (1 << 64) - 1


def _mix(h: int) -> int:
    h ^= h >> 32
    h = h * 0xD6E8FEB86659FD93 & _MASK
    return h ^ h >> 29


def hash_pair(a: int, b: int) -> int:
    """`tt_hash_pair` of kernels/shared/hash.h."""
    return _mix((a << 32 | b) * 0x9E3779B97F4A7C15 & _MASK)


def hash_bytes(data: bytes) -> int:
    """`tt_hash_bytes` of kernels/shared/hash.h."""
    h = 0x9E3779B97F4A7C15 * (len(data) + 1) & _MASK
    for i in range(0, len(data), 8):
        h = _mix((h ^ int.from_bytes(data[i : i + 8], "little")) * 0x9E3779B97F4A7C15 & _MASK)
    return _mix(h)


def piece_key(data: bytes) -> tuple[int, int]:
    """`tt_piece_key` of kernels/shared/piece_table.h: two words."""
    record = data[:15].ljust(15, b"\0") + bytes([min(len(data), 255)])
    return int.from_bytes(record[:8], "little"), int.from_bytes(record[8:], "little")


def hash_piece(data: bytes) -> int:
    """`tt_hash_piece` of kernels/shared/piece_table.h."""
    if len(data) > 15:
        return hash_bytes(data)
    low, high = piece_key(data)
    h = low * 0x9E3779B97F4A7C15 & _MASK
    h = (h ^ h >> 32 ^ high) * 0xD6E8FEB86659FD93 & _MASK
    return h ^ h >> 32


def find_in_lines(slots: Sequence[int], data: bytes, reads: Callable[[int], bytes]) -> int | None:
    """The id that the lines hold for `data`, by the documented walk; `reads`: what an id reads."""
    lines, h = len(slots) // 16, hash_piece(data)
    line = (h >> 32) * lines >> 32
    for _ in range(lines):
        for slot in slots[16 * line : 16 * line + 16]:
            if slot == NONE:
                return None
            if slot >> 20 == h & 0xFFF and reads(slot & 0xFFFFF) == data:
                return slot & 0xFFFFF
        line = (line + 1) % lines
    raise AssertionError("no empty slot ends the walk")


def pair_place(seed: int, displacement: bytes, entries: int, left: int, right: int) -> int:
    """Index of the one entry that may be the pair's, as docs/program-format.md says."""
    low = 0xFFFFFFFF
    a, b, c, d = ((_mix((seed * 4 + i) * 0x9E3779B97F4A7C15 & _MASK) & low) | 1 for i in range(1, 5))
    bucket = (left * a + right * b & low) * len(displacement) >> 32
    scatter = left * c + right * d & low
    return ((scatter ^ displacement[bucket] * 0x9E3779B1 & low) * 0x85EBCA6B & low) * entries >> 32


JOIN_FRAGMENT = 0x200000


def chars_join(sections: Mapping[str, bytes], left: str, right: str) -> bool:
    """`tt_chars_join` of kernels/shared/join_filter.h, for models without characters that lack a symbol."""
    if not sections.get("JCHR"):
        return True

    def bit(tag: str, a: int, b: int) -> bool:
        data = sections.get(tag, b"")
        at = (a * 0x9E3779B1 + b * 0xC2B2AE3D & 0xFFFFFFFF) * 8 * len(data) >> 32
        return bool(data) and bool(data[at >> 3] >> (at & 7) & 1)

    last, lead = JOIN_FRAGMENT | left.encode()[-1], JOIN_FRAGMENT | right.encode()[0]
    return bit("JCHR", ord(left), ord(right)) or any(
        bit("JFRG", a, b) for a, b in ((ord(left), lead), (last, ord(right)), (last, lead))
    )
