// Byte-pair merging of one short piece over arrays that the caller provides: lowest rank first, ties leftmost first, until
// no merge applies. Quadratic in the piece, so for short pieces only; native/engine/piece_encoder.cpp has the heap for long ones.
#pragma once
#include "hash.h"
#include "layout.h"
#include "pair_table.h"
#include "piece_table.h"

// Beyond this many symbols a heap is faster than scanning for the minimum, and the scan's n² begins to show.
constexpr tt_u32 TT_SMALL_PIECE = 48;

// True when the two symbols stand side by side in the product of some live merge: only then may a merge cross them.
TT_HD bool tt_symbols_join(const TtJoinTable& table, tt_u32 left, tt_u32 right) {
  tt_u32 slot = static_cast<tt_u32>(tt_hash_pair(left, right)) & table.mask;
  for (;;) {
    const tt_u32* s = table.slots + static_cast<tt_u64>(slot) * 2;
    if (s[0] == left && s[1] == right) return true;
    if (s[0] == TT_NONE) return false;
    slot = (slot + 1) & table.mask;
  }
}

TT_HD bool tt_bytes_join(const tt_u8* matrix, tt_u8 left, tt_u8 right) {
  const tt_u32 bit = static_cast<tt_u32>(left) << 8 | right;
  return matrix[bit >> 3] >> (bit & 7) & 1;
}

struct TtSymbol {
  tt_u32 id;
  tt_u32 end;            // where the symbol ends in the piece, in any unit
  tt_u32 rank, product;  // of the merge with the next symbol
};

// Merges symbols[0..count) in place; returns how many are left. Only `id` and `end` need be set. What a merge makes is asked for
// when it is chosen: most pairs that merge never do.
TT_HD tt_u32 tt_merge_small(const TtPairTable& table, TtSymbol* symbols, tt_u32 count) {
  if (count < 2) return count;
  for (tt_u32 i = 0; i + 1 < count; ++i) tt_prefetch_merge(table, symbols[i].id, symbols[i + 1].id);
  for (tt_u32 i = 0; i + 1 < count; ++i) symbols[i].rank = tt_find_rank(table, symbols[i].id, symbols[i + 1].id);
  for (;;) {
    tt_u32 best = TT_NONE, at = 0;
    for (tt_u32 i = 0; i + 1 < count; ++i) {
      at = symbols[i].rank < best ? i : at;
      best = symbols[i].rank < best ? symbols[i].rank : best;
    }
    if (best == TT_NONE) return count;
    symbols[at].id = tt_product(table, best);
    symbols[at].end = symbols[at + 1].end;
    --count;
    if (at + 1 < count) tt_prefetch_merge(table, symbols[at].id, symbols[at + 2].id);
    if (at > 0) symbols[at - 1].rank = tt_find_rank(table, symbols[at - 1].id, symbols[at].id);
    for (tt_u32 i = at + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    if (at + 1 < count) symbols[at].rank = tt_find_rank(table, symbols[at].id, symbols[at + 1].id);
  }
}
