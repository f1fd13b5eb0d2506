"""Vocabulary, merge rules and added tokens as sections of a program. Proofs and hash tables come from native/compile.

What is made canonical here, so that equal behaviour gives equal sections: an unknown token or byte fallback that no
text can reach is left out, as are rules on tokens that no text can contain.
"""

from __future__ import annotations

import codecs
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toktier import _native
from toktier.errors import ProgramUnsupported
from toktier.program import unicode
from toktier.program.added_tokens import PlacedToken
from toktier.program.bpe_model import BpeModel
from toktier.program.byte_runs import ByteRuns
from toktier.program.byte_trie import build_byte_trie, little_endian
from toktier.program.code_point_trie import build_trie
from toktier.program.layout import NONE, AddedFlag, Conf, Flag, Join, Model, TokenFlag

# Ids up to this are never too sparse; beyond, at most SPARSE ids a token: tables by id stay in proportion to the file.
DENSE_IDS, SPARSE = 1_000_000, 4

# Bytes that stand in no UTF-8 text: what they would become does not matter.
_NEVER_IN_TEXT = frozenset((0xC0, 0xC1, *range(0xF5, 0x100)))


@dataclass(frozen=True)
class BpeSections:
    """`live_rules`: u32 rows of the rules that can fire, in rank order. `statistics`: see `_native.build_bpe`."""

    sections: dict[str, bytes]
    conf: dict[Conf, int]
    flags: Flag
    live_rules: bytes
    statistics: Mapping[str, int | bool | str | None]


def byte_strings(tokens: Sequence[str]) -> list[bytes]:
    """What each token reads as bytes through the byte alphabet; b"" for one with a character outside of it."""
    encode, table = codecs.charmap_encode, codecs.charmap_build(unicode.byte_alphabet())
    strings = []
    for token in tokens:
        try:
            strings.append(encode(token, "strict", table)[0])
        except UnicodeEncodeError:
            strings.append(b"")
    return strings


def bpe_sections(
    model: BpeModel, placed: Sequence[PlacedToken], *, byte_level: bool, byte_runs: Sequence[ByteRuns] = ()
) -> BpeSections:
    """`byte_runs`: steps that split inside characters. Raises ProgramUnsupported for what is beyond the compiler."""
    vocabulary = model.vocabulary
    n_ids = 1 + max(max(vocabulary.values()), max((token.id for token in placed), default=0))
    if n_ids > max(DENSE_IDS, SPARSE * (len(vocabulary) + len(placed))):
        raise ProgramUnsupported("model.vocab", f"{n_ids:,} ids for {len(vocabulary):,} tokens")
    strings = [b""] * n_ids
    raw = [b""] * n_ids
    flags = bytearray(n_ids)
    in_model = TokenFlag.EXISTS | TokenFlag.MODEL
    read = byte_strings(list(vocabulary)) if byte_level else map(str.encode, vocabulary)
    for (text, identity), bytes_read in zip(vocabulary.items(), read, strict=True):
        strings[identity] = text.encode()
        raw[identity] = b"" if any(runs.splits(bytes_read) for runs in byte_runs) else bytes_read
        flags[identity] = in_model
    for token in placed:
        strings[token.id] = token.token.content.encode()
        flags[token.id] |= TokenFlag.EXISTS | TokenFlag.ADDED | (TokenFlag.SPECIAL if token.token.special else 0)
    rules = _possible_rules(model.rules, raw)
    symbols = _byte_symbols(model) if byte_level else _character_symbols(model)
    if byte_runs and not symbols.flags & Flag.ALL_BYTES:
        # A byte without a symbol vanishes, and its neighbours would meet across a split inside a character.
        raise ProgramUnsupported("pre_tokenizer", "a step that splits bytes, with a byte alphabet that is not complete")
    try:
        sections, live, statistics = _native.build_bpe(
            raw=raw,
            strings=strings,
            flags=bytes(flags),
            merges=rules,
            byte_level=byte_level,
            initial=symbols.initial,
            byte_fallback=symbols.fallback,
            ignore_merges=model.ignore_merges,
            unk_id=symbols.unk_id,
        )
    except ValueError as error:
        raise ProgramUnsupported("model", str(error)) from None
    if byte_runs and model.ignore_merges:
        _check_parts(sections["TFLG"], raw)
    conf = {
        Conf.MODEL: int(Model.BYTE_LEVEL if byte_level else Model.CODE_POINTS),
        Conf.UNK_ID: NONE if symbols.unk_id is None else symbols.unk_id,
        Conf.N_IDS: n_ids,
        Conf.MAX_PIECE: int(statistics["max_piece"] or 0),
        Conf.PAIR_SEED: int(statistics["pair_seed"] or 0),
        Conf.JOIN_KIND: int(next(join for join in Join if join.section == statistics["join"])),
    }
    switches = symbols.flags | (Flag.IGNORE_MERGES if model.ignore_merges else Flag(0))
    return BpeSections({**sections, **symbols.sections}, conf, switches, live, statistics)


def _check_parts(token_flags: bytes, raw: Sequence[bytes]) -> None:
    """The reference takes a part of a split piece whole when it is a token; the engine merges parts. The two differ on
    tokens that merges do not reach, and of these only those matter that begin or end inside a character."""
    for identity, text in enumerate(raw):
        inside = text and (text[0] in range(0x80, 0xC0) or text.decode("utf-8", "ignore").encode() != text)
        if inside and not token_flags[identity] & TokenFlag.REACHABLE:
            raise ProgramUnsupported("model.ignore_merges", f"token {identity} as a part of a split character")


@dataclass(frozen=True)
class _Symbols:
    """How characters become symbols, and what becomes of those that do not."""

    sections: dict[str, bytes]
    initial: array[int]
    fallback: array[int]
    unk_id: int | None
    flags: Flag


def _byte_symbols(model: BpeModel) -> _Symbols:
    ids = [model.vocabulary.get(character, NONE) for character in unicode.byte_alphabet()]
    missing = [byte for byte, identity in enumerate(ids) if identity == NONE and byte not in _NEVER_IN_TEXT]
    if missing and (model.unk_token is not None or model.byte_fallback):
        # The unknown token, or the fallback of the bytes of a mapped character: no tokenizer is known to mean that.
        switch = "byte_fallback" if model.byte_fallback else "unk_token"
        raise ProgramUnsupported(f"model.{switch}", f"a byte alphabet without 0x{missing[0]:02X}")
    initial = array("I", ids)
    flags = Flag.ALL_BYTES if NONE not in ids else Flag(0)
    return _Symbols({"BSYM": little_endian(initial)}, initial, array("I"), None, flags)


def _character_symbols(model: BpeModel) -> _Symbols:
    vocabulary = model.vocabulary
    characters = sorted((ord(token), identity) for token, identity in vocabulary.items() if len(token) == 1)
    stage1, stage2 = build_trie(((cp, cp, identity) for cp, identity in characters), NONE, 4)
    sections = {"CSY1": stage1, "CSY2": stage2}
    flags = Flag(0)
    unk_id: int | None = None
    if model.unk_token is not None:
        unk_id = vocabulary.get(model.unk_token)
        if unk_id is None:  # the reference fails at the first unknown character
            raise ProgramUnsupported("model.unk_token", f"{model.unk_token!r}, which the vocabulary does not hold")
        flags |= Flag.FUSE_UNK if model.fuse_unk else Flag(0)
    fallback = array("I")
    if model.byte_fallback:
        fallback.extend(vocabulary.get(f"<0x{byte:02X}>", NONE) for byte in range(256))
        if set(fallback) == {NONE}:
            fallback = array("I")
        else:
            flags |= Flag.BYTE_FALLBACK
            sections["BFBK"] = little_endian(fallback)
    initial = array("I", (value for pair in characters for value in pair))
    return _Symbols(sections, initial, fallback, unk_id, flags)


def _possible_rules(rules: array[int], raw: Sequence[bytes]) -> array[int]:
    """Without rules on tokens that no piece can contain: the empty one, those outside the byte alphabet."""
    unreal = {identity for identity, text in enumerate(raw) if not text}
    if unreal.isdisjoint(rules):
        return rules
    kept = array("I")
    for at in range(0, len(rules), 3):
        row = rules[at : at + 3]
        if unreal.isdisjoint(row):
            kept.extend(row)
    return kept


def added_token_sections(placed: Sequence[PlacedToken]) -> dict[str, bytes]:
    """ATOK, ASTR and the two matchers."""
    if not placed:
        return {}
    records = array("I")
    strings = bytearray()
    matchers: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
    for index, token in enumerate(placed):
        content = token.token.content.encode()
        records.extend((token.id, int(token.token.flags), len(strings), len(content)))
        strings += content
        matchers[AddedFlag.NORMALIZED in token.token.flags][token.matched.encode()] = index
    sections = {"ATOK": little_endian(records), "ASTR": bytes(strings)}
    for name, matcher in zip(("A0", "A1"), matchers, strict=True):
        trie = build_byte_trie(matcher)
        if trie is not None:
            sections |= {f"{name}NF": trie.nf, f"{name}EB": trie.eb, f"{name}EC": trie.ec, f"{name}NT": trie.nt}
    return sections
