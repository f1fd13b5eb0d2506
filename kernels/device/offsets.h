// tt_offsets: begin and end of each token in code points of its document, as the CPU engine has them before a post-processor:
// from the code point to which its first byte belongs up to and with the one of its last byte. So tokens that share a code
// point overlap. A token ends where the next one or the next piece begins.
#pragma once
#include "characters.h"
#include "documents.h"
#include "next_bit.h"

// Code points that begin before byte `at`.
TT_DEV tt_u32 tt_characters_before(const TtGpuParams& p, tt_u32 at) {
  const tt_u32 word = at / TT_WORD_BYTES, bit = at % TT_WORD_BYTES;
  return p.buffers.characters[word] + (bit == 0 ? 0 : tt_count_bits(tt_lead_bits(p, word) & tt_bits_below(bit)));
}

TT_KERNEL(TT_TILE_THREADS) tt_offsets(TtGpuParams p) {
  TT_SHARED tt_u16 places[TT_TILE_BYTES];
  TT_SHARED TtScan scan;
  const TtGpuBuffers& b = p.buffers;
  const tt_u32 thread = tt_thread(), first = tt_block() * TT_TILE_THREADS, word = first + thread;
  const tt_u32 tokens = tt_bits_of_word(b.tokens, p, word);
  tt_u32 count;
  const tt_u32 before = tt_scan_block(TtSum{}, tt_count_bits(tokens), scan, count);
  tt_list_bits(tokens, before, places);
  tt_barrier();
  for (tt_u32 k = thread; k < count; k += TT_TILE_THREADS) {
    const tt_u32 begin = first * TT_WORD_BYTES + places[k];
    const tt_u32 next = tt_next_bit(begin + 1, p.n / TT_WORD_BYTES + 1, [&](tt_u32 w) { return b.tokens[w] | b.bounds[w]; });
    const tt_u32 end = next < p.n ? next : p.n;
    const tt_u32 from = tt_characters_before(p, b.doc_begin[tt_document_of(b.doc_begin, p.n_docs, begin)]);
    const tt_u32 id = b.rank[first] + k;
    b.offset_begin[id] = tt_characters_before(p, begin + 1) - 1 - from;
    b.offset_end[id] = tt_characters_before(p, end) - from;
  }
}
