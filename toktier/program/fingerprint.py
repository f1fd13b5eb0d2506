"""The fingerprint: a digest of everything that can change ids, offsets or decoding, in canonical form.

Two files with one fingerprint are the same tokenizer, however they are spelled: order of keys, white space, spelling of
merges, rules that can never fire and equivalent regular expressions do not enter; boundary tables, effective ids of
added tokens and rules in rank order do. What is equal may still get two fingerprints (ranks that no text can compare);
what is different never gets one.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from toktier.canonical import TAG_FINGERPRINT, document_digest
from toktier.program.boundary import BoundaryTables
from toktier.program.layout import AddedFlag, Conf, Flag, NormalizerOp, TokenFlag
from toktier.program.tokenizer_json import TokenizerSpec

_UNICODE_SECTIONS = ("NQC1", "NQC2", "NCCC", "NDEC", "NDCP", "NCMP", "NLOW", "NLCP")
_CHARACTER_FLAGS = int(AddedFlag.SINGLE_WORD | AddedFlag.LSTRIP | AddedFlag.RSTRIP)
_VOCABULARY_FLAGS = bytes(flags & (TokenFlag.EXISTS | TokenFlag.MODEL) for flags in range(256))


def fingerprint(
    spec: TokenizerSpec,
    boundary: BoundaryTables | None,
    sections: Mapping[str, bytes],
    conf: Sequence[int],
    live_rules: bytes,
) -> str:
    """Hex digest of the tokenizer whose program has these parts."""
    flags = Flag(conf[Conf.FLAGS])
    reads_characters = any(step.op is NormalizerOp.STRIP for step in spec.normalizer) or any(
        int(placed.token.flags) & _CHARACTER_FLAGS for placed in spec.added_tokens
    )
    document: dict[str, Any] = {
        "normalizer": [step.to_json() for step in spec.normalizer],
        "unicode": {tag: _sha256(sections[tag]) for tag in _UNICODE_SECTIONS if tag in sections},
        "characters": _sha256(sections["CHR1"], sections["CHR2"]) if reads_characters else None,
        "pre_tokenizer": {
            "byte_level": spec.pre_tokenizer.byte_level,
            "prefix_space": spec.pre_tokenizer.prefix_space,
            "boundary": None if boundary is None else boundary_digest(boundary),
            "byte_runs": sorted([sorted(runs.members), runs.joined] for runs in spec.pre_tokenizer.byte_runs),
        },
        "model": {
            "vocabulary": _sha256(sections["STRO"], sections["STRB"], sections["TFLG"].translate(_VOCABULARY_FLAGS)),
            "rules": _sha256(live_rules),
            "unk_id": conf[Conf.UNK_ID],
            "fuse_unk": Flag.FUSE_UNK in flags,
            "byte_fallback": _sha256(sections["BFBK"]) if Flag.BYTE_FALLBACK in flags else None,
            "ignore_merges": Flag.IGNORE_MERGES in flags,
        },
        "added_tokens": sorted(
            [placed.id, placed.token.content, int(placed.token.flags)] for placed in spec.added_tokens
        ),
        "post_processor": spec.post_processor.to_json(),
        "decoder": spec.decoder.to_json(),
        "truncation": None if spec.truncation is None else spec.truncation.to_json(),
        "padding": None if spec.padding is None else spec.padding.to_json(),
    }
    return document_digest(TAG_FINGERPRINT, document)


def boundary_digest(tables: BoundaryTables) -> str:
    """Hex SHA-256 of canonical boundary tables and their classes: equal exactly for equal pre-tokenizers."""
    numbers = (tables.n_class, tables.n_left, tables.n_right, tables.left_start, tables.right_end)
    ranges = b"".join(struct.pack("<3I", *row) for row in tables.class_ranges)
    return _sha256(struct.pack("<5I", *numbers), tables.left, tables.right, tables.matrix, ranges)


def _sha256(*parts: bytes) -> str:
    """Of parts with their lengths, so that no two lists of parts are one stream."""
    state = hashlib.sha256()
    for part in parts:
        state.update(struct.pack("<Q", len(part)))
        state.update(part)
    return state.hexdigest()
