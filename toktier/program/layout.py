"""The program file's layout as Python constants: section tags, CONF fields, flags. Mirrors docs/program-format.md and
kernels/shared/layout.h; tests/program/test_layout.py compares the three. Not the writer (`toktier.program.file`).
"""

from __future__ import annotations

import enum

MAGIC = b"TTPROGRM"
FORMAT_VERSION = 3
HEADER_SIZE = 128
ENTRY_SIZE = 32
ALIGNMENT = 64
MAX_SECTIONS = 128
NONE = 0xFFFFFFFF

TRIE_SHIFT = 7
TRIE_BLOCK = 1 << TRIE_SHIFT
TRIE_STAGE1 = 0x110000 >> TRIE_SHIFT

# tag: element size in bytes. An absent section reads as empty.
SECTIONS: dict[str, int] = {
    "CONF": 4,
    "META": 1,
    "CLS1": 2, "CLS2": 1,
    "LEFT": 1, "RGHT": 1, "BMAT": 1,
    "TRAN": 2, "TACT": 1, "TEOF": 1, "RULE": 8,
    "CUT2": 1, "CUT3": 1, "CUTI": 1,
    "GPAR": 1, "GBYT": 1, "GCP1": 2, "GCP2": 1, "GIMG": 4,
    "CHR1": 2, "CHR2": 1,
    "NOPS": 4, "NSTR": 1, "NQC1": 2, "NQC2": 1, "NCCC": 4, "NDEC": 4, "NDCP": 4, "NCMP": 4, "NLOW": 4, "NLCP": 4,
    "A0NF": 4, "A0EB": 1, "A0EC": 4, "A0NT": 4,
    "A1NF": 4, "A1EB": 1, "A1EC": 4, "A1NT": 4,
    "ATOK": 4, "ASTR": 1,
    "STRO": 4, "STRB": 1, "TFLG": 1, "RAWO": 4, "RAWB": 1, "PHSH": 4, "VHSH": 4,
    "PLIN": 4, "PKEY": 8, "VLIN": 4,
    "BSYM": 4, "CSY1": 2, "CSY2": 4, "BFBK": 4,
    "PAIR": 4, "JBYT": 1, "JSYM": 4,
    "MDIS": 1, "MENT": 8, "MPRD": 4, "JCHR": 4, "JFRG": 4,
    "POST": 4, "DOPS": 4, "DSTR": 1, "DBYO": 4, "DBYT": 1,
}  # fmt: skip


class Conf(enum.IntEnum):
    """Indexes into CONF."""

    MODEL = 0
    FLAGS = 1
    UNK_ID = 2
    N_IDS = 3
    N_CLASS = 4
    N_LEFT = 5
    N_RIGHT = 6
    LEFT_START = 7
    RIGHT_END = 8
    N_TOKEN = 9
    TOKEN_START = 10
    MAX_PIECE = 11
    TRUNC_ON = 12
    TRUNC_MAX = 13
    TRUNC_LEFT = 14
    TRUNC_STRIDE = 15
    PAD_MODE = 16
    PAD_FIXED = 17
    PAD_MULTIPLE = 18
    PAD_ID = 19
    PAD_LEFT = 20
    PREFIX_STAGE = 21
    JOIN_KIND = 22
    PAIR_SEED = 23


CONF_FIELDS = 24


class Model(enum.IntEnum):
    BYTE_LEVEL = 0
    CODE_POINTS = 1


class Flag(enum.IntFlag):
    """CONF[FLAGS]."""

    IGNORE_MERGES = 1
    FUSE_UNK = 2
    BYTE_FALLBACK = 4
    ADD_PREFIX_SPACE = 8
    TRIM_OFFSETS = 16
    TRIM_PREFIX_SPACE = 32
    ALL_BYTES = 64
    NO_DECODER = 128
    NEEDS_NQC = 256


class Join(enum.IntEnum):
    """CONF[JOIN_KIND]: by what the table of possible merges is, that cuts inside a piece rest on."""

    NONE = 0
    BYTES = 1
    SYMBOLS = 2

    @property
    def section(self) -> str | None:
        """The section that holds the table."""
        return {Join.BYTES: "JBYT", Join.SYMBOLS: "JSYM"}.get(self)


class TokenFlag(enum.IntFlag):
    """TFLG, one byte an id."""

    EXISTS = 1
    MODEL = 2
    ADDED = 4
    SPECIAL = 8
    WHOLE_PIECE = 16
    REACHABLE = 32


class AddedFlag(enum.IntFlag):
    """ATOK flags."""

    SINGLE_WORD = 1
    LSTRIP = 2
    RSTRIP = 4
    NORMALIZED = 8
    SPECIAL = 16


class Edge(enum.IntFlag):
    """GBYT, one byte a byte: which added tokens begin and end with it."""

    ENDS = 1
    BEGINS = 2
    ENDS_WORD = 4
    BEGINS_WORD = 8
    RSTRIP = 16
    LSTRIP = 32


class Guard(enum.IntFlag):
    """GCP, one byte a code point: what the normalizer means for a cut beside it."""

    OPAQUE = 1
    IMAGE = 2
    NOT_BEFORE = 4
    NOT_AFTER = 8
    PREFIX = 16


class CutKind(enum.IntEnum):
    """What makes a position of a text a cut."""

    NONE = 0
    PAIR = 1
    LEFT_TRIPLE = 2
    RIGHT_TRIPLE = 3
    JOIN = 4


class NormalizerOp(enum.IntEnum):
    NFC = 1
    NFKC = 2
    NFD = 3
    NFKD = 4
    REPLACE = 5
    PREPEND = 6
    LOWERCASE = 7
    STRIP = 8


class DecoderOp(enum.IntEnum):
    BYTE_LEVEL = 1
    BYTE_FALLBACK = 2
    FUSE = 3
    REPLACE = 4
    STRIP = 5
