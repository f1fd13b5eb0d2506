// tt_gather: the ids of all tokens one behind the other. Ranks of words come from one scan over the mask of tokens, whoever
// set its bits and in which order.
#pragma once
#include "tile_bits.h"

TT_KERNEL(TT_TILE_THREADS) tt_gather(TtGpuParams p) {
  TT_SHARED tt_u16 places[TT_TILE_BYTES];
  TT_SHARED TtScan scan;
  const TtGpuBuffers& b = p.buffers;
  const tt_u32 tile = tt_take_ticket(b.control + TT_CONTROL_GATHER, scan);
  if (tile >= p.n_tiles) return;
  const tt_u32 thread = tt_thread(), word = tile * TT_TILE_THREADS + thread;
  const tt_u32 tokens = tt_bits_of_word(b.tokens, p, word), count = tt_count_bits(tokens);
  tt_u32 in_tile;
  const tt_u32 before = tt_scan_block(TtSum{}, count, scan, in_tile);
  if (thread < TT_LANES) {
    const tt_u32 tiles = tt_look_back(TtSum{}, b.look_ids, tile, in_tile);
    if (thread == 0) scan.before = tiles;
  }
  tt_list_bits(tokens, before, places);
  tt_barrier();
  if (word < p.n_words) b.rank[word] = scan.before + before;
  if (word + 1 == p.n_words) {
    b.rank[p.n_words] = scan.before + in_tile;
    b.control[TT_CONTROL_IDS] = scan.before + in_tile;
  }
  for (tt_u32 k = thread; k < in_tile; k += TT_TILE_THREADS)
    b.ids[scan.before + k] = b.token_id[tile * TT_TILE_BYTES + places[k]];
}
