"""A program file executed slowly and plainly, from its sections alone (docs/program-format.md): text → ids.

The oracle of what the compiler wrote: it shares no code with the engine, and none with the compiler but the reading of
the container. No offsets, no decoding.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from toktier.program.file import ProgramFile, read_program
from toktier.program.layout import NONE, AddedFlag, Conf, Flag, Model, NormalizerOp, TokenFlag
from toktier.program.pair_rows import program_rules


class Refused(Exception):
    """The stored truncation refuses the text, as the reference does."""


@dataclass(frozen=True)
class _Segment:
    text: str
    id: int | None = None


class SlowProgram:
    """`encode` for short texts."""

    def __init__(self, image: bytes) -> None:
        self.file: ProgramFile = read_program(image)
        # Of this program alone, and gone with it: a cache of the class would keep every program that a run has made.
        for method in ("_words", "_trie", "_records", "_compositions"):
            setattr(self, method, cache(getattr(self, method)))
        self.conf = self._words("CONF")
        self.flags = Flag(self.conf[Conf.FLAGS])
        n = self.conf[Conf.N_IDS]
        starts = self._words("RAWO")
        raw = bytes(self.file.section("RAWB"))
        token_flags = bytes(self.file.section("TFLG"))
        assert len(starts) == n + 1
        assert len(token_flags) == n
        self.pieces = {raw[starts[i] : starts[i + 1]]: i for i in range(n) if token_flags[i] & TokenFlag.WHOLE_PIECE}
        slots = self._words("PLIN")
        assert {slot & 0xFFFFF for slot in slots if slot != NONE} == set(self.pieces.values())
        rules = program_rules(self.file)
        self.pairs = {(left, right): (rank, product) for rank, (left, right, product) in enumerate(rules)}
        self.white = self._trie("CHR")

    def _words(self, tag: str) -> tuple[int, ...]:
        data = self.file.section(tag)
        return struct.unpack(f"<{len(data) // 4}I", data)

    def _trie(self, prefix: str) -> Callable[[int], int]:
        stage1 = self.file.section(f"{prefix}1")
        first = struct.unpack(f"<{len(stage1) // 2}H", stage1)
        second = self.file.section(f"{prefix}2")
        values = self._words(f"{prefix}2") if prefix == "CSY" else bytes(second)

        def look_up(cp: int) -> int:
            return values[first[cp >> 7] * 128 + (cp & 127)]

        assert len(first) == 8704
        assert max(first) * 128 + 128 == len(values)
        return look_up

    # segments

    def _segments(self, text: str, matcher: str, plain: bool) -> list[_Segment]:
        nf, ec, nt = (self._words(f"{matcher}{part}") for part in ("NF", "EC", "NT"))
        eb = bytes(self.file.section(f"{matcher}EB"))
        if not nf:
            return [_Segment(text)]
        tokens = self._words("ATOK")
        data = text.encode()
        found: list[tuple[int, int, int]] = []
        at = 0
        while at < len(data):
            node, best, length = 0, NONE, 0
            for k in range(at, len(data)):
                edges = range(nf[node], nf[node + 1])
                step = [ec[e] for e in edges if eb[e] == data[k]]
                if not step:
                    break
                node = step[0]
                if nt[node] != NONE:
                    best, length = nt[node], k + 1 - at
            if best == NONE:
                at += 1
                continue
            found.append((at, at + length, best))
            at += length
        segments: list[_Segment] = []
        previous = 0
        for begin, end, index in found:
            identity, flags = tokens[4 * index], AddedFlag(tokens[4 * index + 1])
            before, after = data[:begin].decode(), data[end:].decode()
            if plain and AddedFlag.SPECIAL in flags:
                continue
            if AddedFlag.SINGLE_WORD in flags and (
                (before and self.white(ord(before[-1])) & 1) or (after and self.white(ord(after[0])) & 1)
            ):
                continue
            if AddedFlag.LSTRIP in flags:
                while before and self.white(ord(before[-1])) & 2:
                    before = before[:-1]
                begin = max(len(before.encode()), previous)
            if AddedFlag.RSTRIP in flags:
                while after and self.white(ord(after[0])) & 2:
                    end += len(after[0].encode())
                    after = after[1:]
            if previous < begin:
                segments.append(_Segment(data[previous:begin].decode()))
            segments.append(_Segment(data[begin:end].decode(), identity))
            previous = end
        if previous < len(data):
            segments.append(_Segment(data[previous:].decode()))
        return segments

    # normalizer

    def _records(self, tag: str, target: str) -> dict[int, tuple[int, ...]]:
        rows, targets = self._words(tag), self._words(target)
        keys = [rows[i] for i in range(0, len(rows), 3)]
        assert keys == sorted(set(keys))
        return {rows[i]: targets[rows[i + 1] : rows[i + 1] + rows[i + 2]] for i in range(0, len(rows), 3)}

    def normalize(self, text: str) -> str:
        ops = self._words("NOPS")
        strings = bytes(self.file.section("NSTR"))
        for i in range(0, len(ops), 5):
            kind, a, n, b, m = ops[i : i + 5]
            first, second = (
                strings[a : a + n].decode() if kind != NormalizerOp.STRIP else "",
                strings[b : b + m].decode(),
            )
            if kind in (NormalizerOp.NFC, NormalizerOp.NFKC, NormalizerOp.NFD, NormalizerOp.NFKD):
                text = self._form(text)
            elif kind == NormalizerOp.REPLACE:
                text = second.join(text.split(first))
            elif kind == NormalizerOp.PREPEND:
                text = first + text if text else text
            elif kind == NormalizerOp.LOWERCASE:
                lower = self._records("NLOW", "NLCP")
                text = "".join(chr(c) for x in text for c in lower.get(ord(x), (ord(x),)))
            else:
                assert kind == NormalizerOp.STRIP
                while a and text and self.white(ord(text[0])) & 2:
                    text = text[1:]
                while n and text and self.white(ord(text[-1])) & 2:
                    text = text[:-1]
        return text

    def _compositions(self) -> dict[tuple[int, int], int]:
        words = self._words("NCMP")
        rows = [words[i : i + 3] for i in range(0, len(words), 3)]
        assert rows == sorted(rows)
        return {(a, b): c for a, b, c in rows}

    def _form(self, text: str) -> str:
        decompositions = self._records("NDEC", "NDCP")
        ccc_words = self._words("NCCC")
        ccc = dict(zip(ccc_words[::2], ccc_words[1::2], strict=True))
        compositions = self._compositions()
        cps = [c for x in text for c in decompositions.get(ord(x), (ord(x),))]
        for i in range(1, len(cps)):  # insertion of marks among marks of higher class
            k = i
            while k and ccc.get(cps[k], 0) and ccc.get(cps[k - 1], 0) > ccc.get(cps[k], 0):
                cps[k - 1], cps[k] = cps[k], cps[k - 1]
                k -= 1
        result: list[int] = []
        for cp in cps:
            own = ccc.get(cp, 0)
            starter = next((k for k in range(len(result) - 1, -1, -1) if not ccc.get(result[k], 0)), None)
            if starter is not None and all(0 < ccc.get(c, 0) < own for c in result[starter + 1 :]):
                whole = compositions.get((result[starter], cp))
                if whole is not None:
                    result[starter] = whole
                    continue
            result.append(cp)
        done = "".join(map(chr, result))
        quick = self._trie("NQC")
        if not any(quick(ord(c)) & 1 for c in text):
            assert done == text, "a text of inert characters changed"
        return done

    # pieces

    def split(self, text: str) -> list[str]:
        n, m, left = (self.conf[f] for f in (Conf.N_CLASS, Conf.N_RIGHT, Conf.LEFT_START))
        if not n or not text:
            return [text] if text else []
        look_up = self._trie("CLS")
        classes = [look_up(ord(c)) for c in text]
        lefts, rights, matrix = (bytes(self.file.section(tag)) for tag in ("LEFT", "RGHT", "BMAT"))
        states = [self.conf[Conf.RIGHT_END]]
        for c in reversed(classes):
            states.append(rights[states[-1] * n + c])
        states.reverse()
        pieces: list[tuple[str, bool]] = []
        for i, c in enumerate(classes):
            value = matrix[left * m + states[i]]
            left = lefts[left * n + c]
            if value or i == 0:
                pieces.append(("", value == 2))
            pieces[-1] = (pieces[-1][0] + text[i], pieces[-1][1])
        return [piece for piece, dropped in pieces if not dropped]

    # model

    def _symbols(self, piece: str) -> list[int]:
        if self.conf[Conf.MODEL] == Model.BYTE_LEVEL:
            table = self._words("BSYM")
            return [table[b] for b in piece.encode() if table[b] != NONE]
        look_up = self._trie("CSY")
        fallback = self._words("BFBK")
        unk = self.conf[Conf.UNK_ID]
        symbols: list[int] = []
        pending = 0
        for c in piece:
            symbol = look_up(ord(c))
            if symbol != NONE:
                symbols += [unk] * pending
                pending = 0
                symbols.append(symbol)
            elif Flag.BYTE_FALLBACK in self.flags and all(fallback[b] != NONE for b in c.encode()):
                symbols += [fallback[b] for b in c.encode()]
            elif unk != NONE:
                if pending and Flag.FUSE_UNK not in self.flags:
                    symbols.append(unk)
                pending = 1
        return symbols + [unk] * pending

    def encode_piece(self, piece: str) -> list[int]:
        whole = self.pieces.get(piece.encode())
        if whole is not None:
            return [whole]
        symbols = self._symbols(piece)
        while len(symbols) > 1:
            candidates = [
                (self.pairs[pair][0], k) for k, pair in enumerate(itertools.pairwise(symbols)) if pair in self.pairs
            ]
            if not candidates:
                break
            _, k = min(candidates)
            symbols[k : k + 2] = [self.pairs[symbols[k], symbols[k + 1]][1]]
        return symbols

    def encode(self, text: str, add_special_tokens: bool = False, *, plain: bool = False) -> list[int]:
        ids: list[int] = []
        for outer in self._segments(text, "A0", plain):
            if outer.id is not None:
                ids.append(outer.id)
                continue
            for inner in self._segments(self.normalize(outer.text), "A1", plain):
                if inner.id is not None:
                    ids.append(inner.id)
                    continue
                segment = inner.text
                if segment and Flag.ADD_PREFIX_SPACE in self.flags and not segment.startswith(" "):
                    segment = " " + segment
                for piece in self.split(segment):
                    ids += self.encode_piece(piece)
        return self._post_process(ids, add_special_tokens)

    def _post_process(self, ids: list[int], add_special_tokens: bool) -> list[int]:
        post = self._words("POST")
        before = list(post[1 : 1 + post[0]])
        after = list(post[2 + post[0] :])
        assert len(after) == post[1 + post[0]]
        if not add_special_tokens:
            before, after = [], []
        conf = self.conf
        room = conf[Conf.TRUNC_MAX] - len(before) - len(after)
        if conf[Conf.TRUNC_ON] and 0 <= room < len(ids):
            if room and conf[Conf.TRUNC_STRIDE] >= room:
                raise Refused
            ids = (ids[len(ids) - room :] if conf[Conf.TRUNC_LEFT] else ids[:room]) if room else []
        ids = before + ids + after
        if conf[Conf.PAD_MODE]:
            length = conf[Conf.PAD_FIXED] if conf[Conf.PAD_MODE] == 2 else len(ids)
            if conf[Conf.PAD_MULTIPLE]:
                length += -length % conf[Conf.PAD_MULTIPLE]
            padding = [conf[Conf.PAD_ID]] * max(0, length - len(ids))
            ids = padding + ids if conf[Conf.PAD_LEFT] else ids + padding
        return ids
