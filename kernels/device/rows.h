// tt_rows: where the ids of each document begin.
#pragma once
#include "tile_bits.h"

// Tokens before byte `at` of the chunk, or all where the chunk ends there.
TT_DEV tt_u32 tt_tokens_before(const TtGpuParams& p, tt_u32 at) {
  if (at >= p.n) return p.buffers.control[TT_CONTROL_IDS];
  const tt_u32 word = at / TT_WORD_BYTES;
  return p.buffers.rank[word] + tt_count_bits(p.buffers.tokens[word] & tt_bits_below(at % TT_WORD_BYTES));
}

TT_KERNEL(TT_TILE_THREADS) tt_rows(TtGpuParams p) {
  for (tt_u64 d = static_cast<tt_u64>(tt_block()) * tt_threads() + tt_thread(); d <= p.n_docs;
       d += static_cast<tt_u64>(tt_blocks()) * tt_threads())
    p.buffers.row[d] = tt_tokens_before(p, p.buffers.doc_begin[d]);
}
