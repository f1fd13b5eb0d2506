"""Slow, plain byte-pair encoding and the inputs of `_native.build_bpe`: what the native tables are compared with.

Written from docs/reference-semantics.md, symbol by symbol. Not the compiler: it reads only the model of files
that tests make or ship.
"""

from __future__ import annotations

import itertools
import json
from array import array
from collections.abc import Iterable, Sequence
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
