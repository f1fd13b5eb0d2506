// The program file's tags, fields and kinds (docs/program-format.md) and the views of its tables that step functions take.
// Mirrors toktier/program/layout.py; a test compares the two. No reader here: native/engine/program.cpp checks a file
// before anything here may be followed, on the host or on a device.
#pragma once
#include "target.h"

constexpr tt_u32 TT_FORMAT_VERSION = 3;
constexpr tt_u32 TT_HEADER_SIZE = 128;
constexpr tt_u32 TT_ENTRY_SIZE = 32;
constexpr tt_u32 TT_ALIGNMENT = 64;
constexpr tt_u32 TT_MAX_SECTIONS = 128;

constexpr tt_u32 TT_TRIE_SHIFT = 7;
constexpr tt_u32 TT_TRIE_BLOCK = 1u << TT_TRIE_SHIFT;
constexpr tt_u32 TT_TRIE_STAGE1 = 0x110000u >> TT_TRIE_SHIFT;

// tag, element size in bytes
#define TT_SECTIONS(X)                                                                                               \
  X(CONF, 4) X(META, 1)                                                                                              \
  X(CLS1, 2) X(CLS2, 1) X(LEFT, 1) X(RGHT, 1) X(BMAT, 1) X(TRAN, 2) X(TACT, 1) X(TEOF, 1) X(RULE, 8) X(CUT2, 1)      \
  X(CUT3, 1) X(CUTI, 1) X(GPAR, 1) X(GBYT, 1) X(GCP1, 2) X(GCP2, 1) X(GIMG, 4)                                                  \
  X(CHR1, 2) X(CHR2, 1)                                                                                              \
  X(NOPS, 4) X(NSTR, 1) X(NQC1, 2) X(NQC2, 1) X(NCCC, 4) X(NDEC, 4) X(NDCP, 4) X(NCMP, 4) X(NLOW, 4) X(NLCP, 4)      \
  X(A0NF, 4) X(A0EB, 1) X(A0EC, 4) X(A0NT, 4) X(A1NF, 4) X(A1EB, 1) X(A1EC, 4) X(A1NT, 4) X(ATOK, 4) X(ASTR, 1)      \
  X(STRO, 4) X(STRB, 1) X(TFLG, 1) X(RAWO, 4) X(RAWB, 1) X(PHSH, 4) X(VHSH, 4)                                       \
  X(PLIN, 4) X(PKEY, 8) X(VLIN, 4)                                                                                   \
  X(BSYM, 4) X(CSY1, 2) X(CSY2, 4) X(BFBK, 4) X(PAIR, 4) X(JBYT, 1) X(JSYM, 4)                                       \
  X(MDIS, 1) X(MENT, 8) X(MPRD, 4) X(JCHR, 4) X(JFRG, 4)                                                             \
  X(POST, 4) X(DOPS, 4) X(DSTR, 1) X(DBYO, 4) X(DBYT, 1)

enum TtSection : tt_u32 {
#define TT_X(tag, size) TT_SECTION_##tag,
  TT_SECTIONS(TT_X)
#undef TT_X
      TT_SECTION_COUNT
};

enum TtConf : tt_u32 {
  TT_CONF_MODEL = 0,
  TT_CONF_FLAGS = 1,
  TT_CONF_UNK_ID = 2,
  TT_CONF_N_IDS = 3,
  TT_CONF_N_CLASS = 4,
  TT_CONF_N_LEFT = 5,
  TT_CONF_N_RIGHT = 6,
  TT_CONF_LEFT_START = 7,
  TT_CONF_RIGHT_END = 8,
  TT_CONF_N_TOKEN = 9,
  TT_CONF_TOKEN_START = 10,
  TT_CONF_MAX_PIECE = 11,
  TT_CONF_TRUNC_ON = 12,
  TT_CONF_TRUNC_MAX = 13,
  TT_CONF_TRUNC_LEFT = 14,
  TT_CONF_TRUNC_STRIDE = 15,
  TT_CONF_PAD_MODE = 16,
  TT_CONF_PAD_FIXED = 17,
  TT_CONF_PAD_MULTIPLE = 18,
  TT_CONF_PAD_ID = 19,
  TT_CONF_PAD_LEFT = 20,
  TT_CONF_PREFIX_STAGE = 21,
  TT_CONF_JOIN_KIND = 22,
  TT_CONF_PAIR_SEED = 23,
  TT_CONF_FIELDS = 24
};

enum TtModel : tt_u32 { TT_MODEL_BYTE_LEVEL = 0, TT_MODEL_CODE_POINTS = 1 };

enum TtFlag : tt_u32 {
  TT_FLAG_IGNORE_MERGES = 1,
  TT_FLAG_FUSE_UNK = 2,
  TT_FLAG_BYTE_FALLBACK = 4,
  TT_FLAG_ADD_PREFIX_SPACE = 8,
  TT_FLAG_TRIM_OFFSETS = 16,
  TT_FLAG_TRIM_PREFIX_SPACE = 32,
  TT_FLAG_ALL_BYTES = 64,
  TT_FLAG_NO_DECODER = 128,
  TT_FLAG_NEEDS_NQC = 256
};
constexpr tt_u32 TT_ALL_FLAGS = 2 * TT_FLAG_NEEDS_NQC - 1;

enum TtTokenFlag : tt_u32 {
  TT_TOKEN_EXISTS = 1,
  TT_TOKEN_MODEL = 2,
  TT_TOKEN_ADDED = 4,
  TT_TOKEN_SPECIAL = 8,
  TT_TOKEN_WHOLE_PIECE = 16,
  TT_TOKEN_REACHABLE = 32
};

enum TtAddedFlag : tt_u32 {
  TT_ADDED_SINGLE_WORD = 1,
  TT_ADDED_LSTRIP = 2,
  TT_ADDED_RSTRIP = 4,
  TT_ADDED_NORMALIZED = 8,
  TT_ADDED_SPECIAL = 16
};

enum TtEdge : tt_u32 {  // GBYT
  TT_EDGE_ENDS = 1,
  TT_EDGE_BEGINS = 2,
  TT_EDGE_ENDS_WORD = 4,
  TT_EDGE_BEGINS_WORD = 8,
  TT_EDGE_RSTRIP = 16,
  TT_EDGE_LSTRIP = 32
};
constexpr tt_u32 TT_ALL_EDGES = 2 * TT_EDGE_LSTRIP - 1;

enum TtGuard : tt_u32 {  // GCP2
  TT_GUARD_OPAQUE = 1,
  TT_GUARD_IMAGE = 2,
  TT_GUARD_NOT_BEFORE = 4,
  TT_GUARD_NOT_AFTER = 8,
  TT_GUARD_PREFIX = 16
};
constexpr tt_u32 TT_ALL_GUARDS = 2 * TT_GUARD_PREFIX - 1;

enum TtCutKind : tt_u32 {  // what makes a position a cut
  TT_CUT_NONE = 0,
  TT_CUT_PAIR = 1,
  TT_CUT_LEFT_TRIPLE = 2,
  TT_CUT_RIGHT_TRIPLE = 3,
  TT_CUT_JOIN = 4
};

enum TtNormalizerOp : tt_u32 {
  TT_NORMALIZER_NFC = 1,
  TT_NORMALIZER_NFKC = 2,
  TT_NORMALIZER_NFD = 3,
  TT_NORMALIZER_NFKD = 4,
  TT_NORMALIZER_REPLACE = 5,
  TT_NORMALIZER_PREPEND = 6,
  TT_NORMALIZER_LOWERCASE = 7,
  TT_NORMALIZER_STRIP = 8
};

enum TtDecoderOp : tt_u32 {
  TT_DECODER_BYTE_LEVEL = 1,
  TT_DECODER_BYTE_FALLBACK = 2,
  TT_DECODER_FUSE = 3,
  TT_DECODER_REPLACE = 4,
  TT_DECODER_STRIP = 5
};

enum TtPadMode : tt_u32 { TT_PAD_NONE = 0, TT_PAD_LONGEST = 1, TT_PAD_FIXED = 2 };
enum TtJoinKind : tt_u32 { TT_JOIN_NONE = 0, TT_JOIN_BYTES = 1, TT_JOIN_SYMBOLS = 2 };

constexpr tt_u8 TT_CHAR_WORD = 1;   // CHR2
constexpr tt_u8 TT_CHAR_SPACE = 2;  // CHR2
constexpr tt_u8 TT_NQC_NOT_INERT = 1;
constexpr tt_u8 TT_NQC_INSIDE_UNIT = 2;
constexpr tt_u32 TT_MAX_PENDING = 3;

// RULE: places of a window of classes, those before the position first; bits of a word by what their terms say.
constexpr tt_u32 TT_RULE_PLACES = 5, TT_RULE_BEFORE = 3;
constexpr tt_u32 TT_RULE_STARTS = 32, TT_RULE_DROPS = 8, TT_RULE_UNDECIDED = 24;
// More classes have no rules: the widest byte shuffle looks up 64, and the outside of the segment is one of them.
constexpr tt_u32 TT_MAX_RULE_CLASSES = 63;

// The boundary automaton, both forms.
struct TtBoundary {
  const tt_u16* class1;  // CLS1
  const tt_u8* class2;   // CLS2
  const tt_u8* left;     // [n_left * n_class]
  const tt_u8* right;    // [n_right * n_class]
  const tt_u8* matrix;   // [n_left * n_right]
  const tt_u16* token_next;
  const tt_u8* token_action;
  const tt_u8* token_end;
  tt_u32 n_class, n_left, n_right, left_start, right_end, n_token, token_start;
};

// Open addressing; mask = capacity - 1. At least one slot is empty, so probing ends.
struct TtJoinTable {
  const tt_u32* slots;  // [capacity * 2]: symbols side by side; empty: first = TT_NONE
  tt_u32 mask;
};
