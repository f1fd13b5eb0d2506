// What host and kernels agree on: the names of the kernels, the one parameter block that all of them take by value, the sizes
// of tiles, the reasons for which a document is left to the CPU. The block `tt_abi` in every cubin holds the numbers below, and
// the host compares them before it launches anything. docs/gpu.md says what each kernel does.
// Views of tables are those of kernels/shared, filled with device addresses.
#pragma once
#include "boundary.h"
#include "bpe.h"
#include "layout.h"
#include "pair_table.h"
#include "piece_table.h"
#include "trie.h"

constexpr tt_u32 TT_GPU_MAGIC = 0x54544B31;  // TTK1
constexpr tt_u32 TT_GPU_ABI = 1;             // raise it with any change of meaning in this file

constexpr tt_u32 TT_TILE_THREADS = 128;                                // of every kernel
constexpr tt_u32 TT_WORD_BYTES = 32;                                   // of text: one bit each in a word of a mask
constexpr tt_u32 TT_TILE_BYTES = TT_TILE_THREADS * TT_WORD_BYTES;      // 4,096
constexpr tt_u32 TT_TEXT_PADDING = 64;                                 // readable zero bytes behind a chunk of text
constexpr tt_u32 TT_THREAD_PIECE = 32;                                 // bytes: longest piece that one thread merges
constexpr tt_u32 TT_WARP_PIECE = 256;
constexpr tt_u32 TT_BLOCK_PIECE = 4096;                                // beyond it: the CPU
constexpr tt_u32 TT_MAX_ELEMENTS = 255;                                // of a transition monoid: one byte each
constexpr tt_u32 TT_MAX_CHUNK = 1u << 27;                              // bytes of text in one launch

// name, work of a launch: tiles of text, documents, or however much the queues hold (the host launches as many blocks as fit)
#define TT_KERNELS(X) \
  X(tt_documents, DOCUMENTS)   /* marks where documents begin */                                       \
  X(tt_facts, TILES)           /* UTF-8, characters that a normalizer may change, added tokens */      \
  X(tt_right, TILES)           /* right states at the edges of words, backwards */                     \
  X(tt_left, TILES)            /* left states, and with them every boundary */                         \
  X(tt_pieces, TILES)          /* whole-piece look-up; what misses is queued */                        \
  X(tt_spans, QUEUE)           /* long pieces, cut where no merge joins */                             \
  X(tt_merge_thread, QUEUE)    /* up to 32 bytes, a thread each */                                     \
  X(tt_merge_warp, QUEUE)      /* up to 256 */                                                         \
  X(tt_merge_block, QUEUE)     /* up to 4,096 */                                                       \
  X(tt_gather, TILES)          /* ids one after the other */                                           \
  X(tt_rows, DOCUMENTS)        /* where each document's ids begin */                                   \
  X(tt_characters, TILES)      /* code points before each word; only where offsets are wanted */       \
  X(tt_offsets, TILES)         /* of each token, in code points of its document; only then */

enum TtKernel : tt_u32 {
#define TT_X(name, work) TT_KERNEL_##name,
  TT_KERNELS(TT_X)
#undef TT_X
      TT_KERNEL_COUNT
};

// Bits of doc_flags: why a document is encoded by the CPU instead. What the kernels wrote for it is not looked at.
enum TtLeft : tt_u32 {
  TT_LEFT_MALFORMED = 1,   // not UTF-8
  TT_LEFT_NORMALIZED = 2,  // a character that the normalizer may change
  TT_LEFT_OVERLAP = 4,     // added tokens that overlap
  TT_LEFT_FLAGS = 8,       // an added token whose flags look at its surroundings (single_word, lstrip, rstrip)
  TT_LEFT_GIANT = 16       // more than 4,096 bytes that nothing cuts
};

// A transition monoid of the boundary automaton, segment borders included: functions on states, numbered, 0 the identity.
// A character is an element; so is "a segment begins, then the character", a constant function.
struct TtMonoid {
  const tt_u8* of_class;    // [n_class]
  const tt_u8* of_first;    // [n_class] of a character that is the first of its segment, in the order of reading
  const tt_u8* compose;     // [n_elements * n_elements] a, then b, in the order of reading: at a * n_elements + b
  const tt_u8* state;       // [n_elements] where it leads from the state in which a segment begins
  tt_u32 n_elements;
};

// Added tokens of one pass, as the program has them; node 0 is the root.
struct TtAddedTrie {
  const tt_u32* two_bytes;   // [2048] bit first * 256 + second: a token begins so, or is `first` alone; null: no tokens
  const tt_u32* first_edge;  // [nodes + 1]
  const tt_u8* edge_byte;    // ascending in a node
  const tt_u32* edge_child;
  const tt_u32* token;       // [nodes] index in `added`, or none
};

// Arrays begin at multiples of 16 bytes.
struct TtGpuTables {
  TtBoundary boundary;        // token_* null
  TtMonoid left, right;
  TtTrie<tt_u8> quick;        // NQC; stage1 null: there is no normalizer
  TtAddedTrie added_trie[2];
  const tt_u32* added;        // [n_added * 2] id, flags
  TtPieceTable pieces;
  const tt_u8* token_flags;   // [n_ids]
  TtPairTable pairs;
  const tt_u32* byte_symbol;  // [256], none missing
  const tt_u8* join_bytes;    // JBYT, or null: pieces are not cut
  tt_u32 max_piece;           // bytes of the longest whole piece
};

// Queues of pieces and parts of pieces: begin | bytes << 32; in the long queue bytes = 0 where the end is not found yet.
enum TtQueue : tt_u32 { TT_QUEUE_LONG, TT_QUEUE_THREAD, TT_QUEUE_WARP, TT_QUEUE_BLOCK, TT_QUEUE_COUNT };

// Words of `control`, zero before a run.
enum TtControl : tt_u32 {
  TT_CONTROL_RIGHT,   // tickets of tiles
  TT_CONTROL_LEFT,
  TT_CONTROL_GATHER,
  TT_CONTROL_CHARACTERS,
  TT_CONTROL_QUEUED,  // [TT_QUEUE_COUNT] items in each queue
  TT_CONTROL_TAKEN = TT_CONTROL_QUEUED + TT_QUEUE_COUNT,  // [TT_QUEUE_COUNT] items that blocks have taken out
  TT_CONTROL_IDS = TT_CONTROL_TAKEN + TT_QUEUE_COUNT,     // ids of all documents
  TT_CONTROL_LEFT_DOCUMENTS,                              // documents with a flag
  TT_CONTROL_WORDS = 32
};

// A chunk: documents one behind the other. W = words(n) = ceil(n / 32), T = tiles = ceil(n / 4096).
struct TtGpuBuffers {
  const tt_u8* text;        // [n], TT_TEXT_PADDING zero bytes behind; 16-byte aligned
  const tt_u32* doc_begin;  // [n_docs + 1]
  // Zero before a run, in one stretch of memory.
  tt_u32* control;          // [TT_CONTROL_WORDS]
  tt_u32* doc_flags;        // [n_docs] TtLeft
  tt_u32* edges;            // [W + 1] bit: a segment or an added token begins or ends before this byte; also at n
  tt_u32* covered;          // [W] bit: byte of an added token
  tt_u32* tokens;           // [W + 1] bit: a token begins at this byte
  tt_u32* look_right;       // [T] words of look-back, one array a scan
  tt_u32* look_left;        // [T]
  tt_u32* look_ids;         // [T]
  tt_u32* look_characters;  // [T]
  // Not zeroed: each word is written before it is read.
  tt_u32* bounds;           // [W + 1] bit: a piece, or an added token, begins at this byte; also at n
  tt_u32* dropped;          // [W] bit: that piece has no ids
  tt_u8* right_state;       // [W] right state behind the last character that begins in the word
  tt_u32* token_id;         // [n] of the token that begins at this byte
  tt_u64* queue[TT_QUEUE_COUNT];  // [n / 33 + 1], [n / 2 + 1], [n / 33 + 1], [n / 257 + 1]
  tt_u32* rank;             // [W + 1] tokens before the word
  tt_u32* characters;       // [W + 1] code points before the word; null: no offsets
  tt_u32* ids;              // [n]
  tt_u32* row;              // [n_docs + 1] first id of each document
  tt_u32* offset_begin;     // [n] by id, or null
  tt_u32* offset_end;
};

struct TtGpuParams {
  TtGpuTables tables;
  TtGpuBuffers buffers;
  tt_u32 n, n_docs, n_words, n_tiles;
  tt_u32 plain;  // 1: special added tokens are ordinary text
  tt_u32 zero;
};

// The block that every cubin carries.
#define TT_ABI_BLOCK                                                                                                      \
  {                                                                                                                      \
    TT_GPU_MAGIC, TT_GPU_ABI, static_cast<tt_u32>(sizeof(TtGpuParams)), static_cast<tt_u32>(sizeof(TtGpuTables)),         \
        static_cast<tt_u32>(sizeof(TtGpuBuffers)), TT_TILE_THREADS, TT_TILE_BYTES, TT_TEXT_PADDING, TT_THREAD_PIECE,      \
        TT_WARP_PIECE, TT_BLOCK_PIECE, TT_KERNEL_COUNT, TT_CONTROL_WORDS, TT_FORMAT_VERSION                               \
  }
constexpr tt_u32 TT_ABI_WORDS = 14;
