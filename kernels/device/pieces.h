// tt_pieces: every piece that begins in a tile is looked up as a whole; most are one token, and are done. The others are queued.
// Each word of `tokens` belongs to one block here, which keeps it in shared memory: no atomics on global memory.
#pragma once
#include "look_up.h"
#include "next_bit.h"
#include "queue.h"
#include "tile_bits.h"

// Words in which the end of a tile's last piece is looked for. A piece that goes on is for tt_spans, where a warp looks.
constexpr tt_u32 TT_NEAR_WORDS = 64;

// Bytes of the piece, or 0 where no end is near. `end`: the next begin, where the caller knows it.
TT_DEV tt_u32 tt_piece_bytes(const TtGpuParams& p, tt_u32 begin, tt_u32 end) {
  if (end == TT_NONE) {
    const tt_u32 last = p.n / TT_WORD_BYTES, near = begin / TT_WORD_BYTES + TT_NEAR_WORDS;  // bit n ends the last piece
    end = tt_next_bit(p.buffers.bounds, begin + 1, (near < last ? near : last) + 1);
    if (end == TT_NONE) return 0;
  }
  return (end < p.n ? end : p.n) - begin;
}

TT_KERNEL(TT_TILE_THREADS) tt_pieces(TtGpuParams p) {
  TT_SHARED tt_u16 places[TT_TILE_BYTES];
  TT_SHARED tt_u32 skipped[TT_TILE_THREADS], found[TT_TILE_THREADS];
  TT_SHARED TtScan scan;
  const TtGpuBuffers& b = p.buffers;
  const tt_u32 thread = tt_thread(), word = tt_block() * TT_TILE_THREADS + thread, tile_begin = tt_block() * TT_TILE_BYTES;
  const tt_u32 begins = tt_bits_of_word(b.bounds, p, word);
  skipped[thread] = word < p.n_words ? b.dropped[word] | b.covered[word] : 0;
  found[thread] = 0;
  tt_u32 count;
  const tt_u32 before = tt_scan_block(TtSum{}, tt_count_bits(begins), scan, count);
  tt_list_bits(begins, before, places);
  tt_barrier();
  for (tt_u32 first = 0; first < count; first += TT_TILE_THREADS) {  // all lanes go along: they push together
    const tt_u32 k = first + thread, place = k < count ? places[k] : 0, bit = 1u << (place & 31);
    const tt_u32 begin = tile_begin + place;
    tt_u32 bytes = 0;
    bool missed = false;
    if (k < count && (skipped[place / TT_WORD_BYTES] & bit) == 0) {
      bytes = tt_piece_bytes(p, begin, k + 1 < count ? tile_begin + places[k + 1] : TT_NONE);
      const tt_u32 id = bytes == 0 ? TT_NONE : tt_look_up(p.tables, b.text, begin, bytes, true);
      missed = id == TT_NONE;
      if (!missed) {
        b.token_id[begin] = id;
        tt_atomic_or(found + place / TT_WORD_BYTES, bit);
      }
    }
    const bool is_short = bytes != 0 && bytes <= TT_THREAD_PIECE;
    tt_push(b, TT_QUEUE_THREAD, missed && is_short, begin, bytes);
    tt_push(b, TT_QUEUE_LONG, missed && !is_short, begin, bytes);
  }
  tt_barrier();
  if (found[thread] != 0) b.tokens[word] |= found[thread];  // beside the added tokens that tt_facts put there
}
