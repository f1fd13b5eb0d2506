// Byte-pair merging of one short piece over arrays that the caller provides: lowest rank first, ties leftmost first, until
// no merge applies. Quadratic in the piece, so for short pieces only; native/engine/piece_encoder.cpp has the heap for long ones.
#pragma once
#include "hash.h"
#include "layout.h"

// Beyond this many symbols a heap is faster than scanning for the minimum, and the scan's n² begins to show.
constexpr tt_u32 TT_SMALL_PIECE = 48;

// A pair look-up is one random access to a table of megabytes; on a host the next ones are asked for ahead.
#if defined(__GNUC__) && !defined(__CUDACC_RTC__) && !defined(__CUDACC__)
#define TT_PREFETCH(address) __builtin_prefetch(address)
#else
#define TT_PREFETCH(address) static_cast<void>(0)
#endif

struct TtMerge {
  tt_u32 rank, product;  // rank TT_NONE: the pair does not merge
};

TT_HD bool tt_may_merge(const TtPairTable& table, tt_u64 hash) {
  if (table.filter == nullptr) return true;
  const tt_u64 bit = hash >> table.filter_shift;
  return (table.filter[bit >> 6] >> (bit & 63) & 1) != 0;
}

TT_HD void tt_prefetch_merge(const TtPairTable& table, tt_u32 left, tt_u32 right) {
  const tt_u64 hash = tt_hash_pair(left, right);
  if (tt_may_merge(table, hash)) TT_PREFETCH(table.slots + static_cast<tt_u64>(static_cast<tt_u32>(hash) & table.mask) * 4);
}

TT_HD TtMerge tt_find_merge(const TtPairTable& table, tt_u32 left, tt_u32 right) {
  const tt_u64 hash = tt_hash_pair(left, right);
  if (!tt_may_merge(table, hash)) return {TT_NONE, TT_NONE};
  tt_u32 slot = static_cast<tt_u32>(hash) & table.mask;
  for (;;) {
    const tt_u32* s = table.slots + static_cast<tt_u64>(slot) * 4;
    if (s[0] == left && s[1] == right) return {s[2], s[3]};
    if (s[0] == TT_NONE) return {TT_NONE, TT_NONE};
    slot = (slot + 1) & table.mask;
  }
}

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

// Id of the whole-piece entry that reads exactly these bytes, or TT_NONE.
TT_HD tt_u32 tt_find_piece(const TtPieceTable& table, const tt_u8* bytes, tt_u32 length) {
  tt_u32 slot = static_cast<tt_u32>(tt_hash_bytes(bytes, length)) & table.mask;
  for (;;) {
    const tt_u32 id = table.slots[slot];
    if (id == TT_NONE) return TT_NONE;
    const tt_u32 begin = table.raw_offset[id];
    if (table.raw_offset[id + 1] - begin == length) {
      tt_u32 i = 0;
      while (i < length && table.raw[begin + i] == bytes[i]) ++i;
      if (i == length) return id;
    }
    slot = (slot + 1) & table.mask;
  }
}

struct TtSymbol {
  tt_u32 id;
  tt_u32 end;            // where the symbol ends in the piece, in any unit
  tt_u32 rank, product;  // of the merge with the next symbol
};

// Merges symbols[0..count) in place; returns how many are left. Only `id` and `end` need be set.
TT_HD tt_u32 tt_merge_small(const TtPairTable& table, TtSymbol* symbols, tt_u32 count) {
  if (count < 2) return count;
  for (tt_u32 i = 0; i + 1 < count; ++i) tt_prefetch_merge(table, symbols[i].id, symbols[i + 1].id);
  for (tt_u32 i = 0; i + 1 < count; ++i) {
    const TtMerge m = tt_find_merge(table, symbols[i].id, symbols[i + 1].id);
    symbols[i].rank = m.rank;
    symbols[i].product = m.product;
  }
  for (;;) {
    tt_u32 best = TT_NONE, at = 0;
    for (tt_u32 i = 0; i + 1 < count; ++i) {
      at = symbols[i].rank < best ? i : at;
      best = symbols[i].rank < best ? symbols[i].rank : best;
    }
    if (best == TT_NONE) return count;
    symbols[at].id = symbols[at].product;
    symbols[at].end = symbols[at + 1].end;
    --count;
    if (at + 1 < count) tt_prefetch_merge(table, symbols[at].id, symbols[at + 2].id);
    if (at > 0) {
      const TtMerge m = tt_find_merge(table, symbols[at - 1].id, symbols[at].id);
      symbols[at - 1].rank = m.rank;
      symbols[at - 1].product = m.product;
    }
    for (tt_u32 i = at + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    if (at + 1 < count) {
      const TtMerge m = tt_find_merge(table, symbols[at].id, symbols[at + 1].id);
      symbols[at].rank = m.rank;
      symbols[at].product = m.product;
    }
  }
}
