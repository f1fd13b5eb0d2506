// tt_merge_thread: a thread merges a piece of up to 32 bytes by the rule of tt_merge_small: the lowest rank first, of equal ones
// the leftmost. Symbols stay at the place of their first byte; bits of two registers say which places still have one, and which
// of those merge with the next, so neighbours are found by counting zeros and nothing is moved.
#pragma once
#include "next_bit.h"
#include "queue.h"
#include "text.h"

// By place, then by thread: the lanes of a warp are in 32 banks, whichever places they look at.
using TtThreadSymbols = tt_u32[TT_THREAD_PIECE][TT_TILE_THREADS];

// Places, as bits, that have a symbol in the end: in ids[place][thread], whatever becomes of the others.
TT_DEV tt_u32 tt_merge_in_thread(const TtGpuTables& t, const tt_u8* text, tt_u32 begin, tt_u32 bytes, TtThreadSymbols& ids,
                                 TtThreadSymbols& ranks) {
  const tt_u32 thread = tt_thread();
  tt_u64 eight = 0;
  for (tt_u32 i = 0; i < bytes; ++i, eight >>= 8) {
    if (i % 8 == 0) eight = tt_read16(text, begin + i).low;
    ids[i][thread] = t.byte_symbol[eight & 255];
  }
  tt_u32 joining = 0;
  for (tt_u32 i = 0; i + 1 < bytes; ++i) {
    const tt_u32 rank = tt_find_rank(t.pairs, ids[i][thread], ids[i + 1][thread]);
    ranks[i][thread] = rank;
    joining |= static_cast<tt_u32>(rank != TT_NONE) << i;
  }
  tt_u32 living = tt_bits_below(bytes);
  while (joining != 0) {
    tt_u32 lowest = TT_NONE, at = 0;
    for (tt_u32 bits = joining; bits != 0; bits &= bits - 1) {
      const tt_u32 place = tt_lowest_bit(bits), rank = ranks[place][thread];
      at = rank < lowest ? place : at;
      lowest = rank < lowest ? rank : lowest;
    }
    const tt_u32 product = tt_product(t.pairs, lowest), next = tt_lowest_bit(living & tt_bits_above(at));
    ids[at][thread] = product;
    living ^= 1u << next;
    joining &= ~(1u << next | 1u << at);
    const tt_u32 before = living & tt_bits_below(at), after = living & tt_bits_above(at);
    // Both look-ups are made whether or not there is a neighbour, so that neither waits for the other.
    const tt_u32 lower = before == 0 ? at : tt_highest_bit(before), upper = after == 0 ? at : tt_lowest_bit(after);
    const tt_u32 left = tt_find_rank(t.pairs, ids[lower][thread], product);
    const tt_u32 right = tt_find_rank(t.pairs, product, ids[upper][thread]);
    if (before != 0) {
      ranks[lower][thread] = left;
      joining = (joining & ~(1u << lower)) | static_cast<tt_u32>(left != TT_NONE) << lower;
    }
    if (after != 0) {
      ranks[at][thread] = right;
      joining |= static_cast<tt_u32>(right != TT_NONE) << at;
    }
  }
  return living;
}

TT_KERNEL(TT_TILE_THREADS) tt_merge_thread(TtGpuParams p) {
  TT_SHARED TtThreadSymbols ids, ranks;
  const tt_u32 count = tt_queued(p.buffers, TT_QUEUE_THREAD);
  for (tt_u32 first; (first = tt_take(p.buffers, TT_QUEUE_THREAD, TT_LANES)) < count;) {
    if (first + tt_lane() >= count) continue;
    const tt_u64 item = p.buffers.queue[TT_QUEUE_THREAD][first + tt_lane()];
    const tt_u32 begin = tt_item_begin(item);
    const tt_u32 living = tt_merge_in_thread(p.tables, p.buffers.text, begin, tt_item_bytes(item), ids, ranks);
    for (tt_u32 bits = living; bits != 0; bits &= bits - 1)
      p.buffers.token_id[begin + tt_lowest_bit(bits)] = ids[tt_lowest_bit(bits)][tt_thread()];
    tt_mark_tokens(p.buffers.tokens, begin, living);
  }
}
