// Which two symbols merge, at which rank, into what. The compact form is a perfect hash (hash and displace): two small loads say
// where the one entry lies that may be the pair's, and the entry is compared whole. It fits a second-level cache, has no branch
// that a processor could guess wrong, and can be probed by gathers: `displacement`, `entries` and `multiply` are all there is.
// The wide form, open addressing, is for vocabularies beyond 2^20 ids, and for those with which a vocabulary was
// made to defeat the perfect hash. Built by native/compile/pair_table.cpp.
#pragma once
#include "hash.h"

// An entry: left 20 bits, right 20 bits, order 24 bits. Orders ascend with the ranks of the rules. Where products ascend too, as
// in most vocabularies, the order of a rule is its product, and no table of products is needed; else it is the rank.
// No token has the id 0xFFFFF, so an empty entry equals no pair.
constexpr tt_u64 TT_NO_PAIR = ~0ull;
constexpr tt_u32 TT_PAIR_ID_BITS = 20;
constexpr tt_u32 TT_PAIR_ORDER_BITS = 24;
constexpr tt_u32 TT_PAIR_IDS = (1u << TT_PAIR_ID_BITS) - 1;       // ids below this
constexpr tt_u32 TT_PAIR_ORDERS = (1u << TT_PAIR_ORDER_BITS) - 1;  // orders below this
constexpr tt_u32 TT_DISPLACE = 0x9E3779B1u, TT_SCATTER = 0x85EBCA6Bu;

struct TtPairTable {
  const tt_u8* displacement;  // MDIS, [1 << (32 - bucket_shift)]; null: the wide form
  const tt_u64* entries;      // MENT, [n_entries]
  const tt_u32* product;      // MPRD, by order; null: an order is its product
  tt_u32 multiply[4];         // bucket = (left * [0] + right * [1]) >> bucket_shift; place by left * [2] + right * [3]
  tt_u32 bucket_shift, n_entries;
  const tt_u32* slots;        // PAIR: left, right, order; one slot at least is empty, so that probing ends
  tt_u32 mask;                // capacity - 1
};

TT_HD void tt_pair_multipliers(tt_u32 seed, tt_u32 multiply[4]) {
  for (tt_u32 i = 0; i < 4; ++i)
    multiply[i] = static_cast<tt_u32>(tt_hash_mix((static_cast<tt_u64>(seed) * 4 + i + 1) * TT_HASH_A)) | 1;
}

TT_HD tt_u32 tt_reduce(tt_u32 hash, tt_u32 size) {  // evenly into 0..size-1, without a division
  return static_cast<tt_u32>(static_cast<tt_u64>(hash) * size >> 32);
}

TT_HD tt_u32 tt_pair_bucket(const TtPairTable& t, tt_u32 left, tt_u32 right) {
  return (left * t.multiply[0] + right * t.multiply[1]) >> t.bucket_shift;
}
TT_HD tt_u32 tt_pair_scatter(const TtPairTable& t, tt_u32 left, tt_u32 right) {
  return left * t.multiply[2] + right * t.multiply[3];
}
// The multiplication comes after the displacement: were it an offset alone, two keys that meet once would meet always.
TT_HD tt_u32 tt_pair_place(tt_u32 scatter, tt_u32 displacement, tt_u32 n_entries) {
  return tt_reduce((scatter ^ displacement * TT_DISPLACE) * TT_SCATTER, n_entries);
}

TT_HD tt_u64 tt_pair_entry(tt_u32 left, tt_u32 right, tt_u32 order) {
  return (static_cast<tt_u64>(left) << TT_PAIR_ID_BITS | right) << TT_PAIR_ORDER_BITS | order;
}

struct TtMerge {
  tt_u32 rank, product;  // rank: an order, TT_NONE where the pair does not merge
};

TT_HD void tt_prefetch_merge(const TtPairTable& t, tt_u32 left, tt_u32 right) {
  if (t.displacement == nullptr) {
    TT_PREFETCH(t.slots + static_cast<tt_u64>(static_cast<tt_u32>(tt_hash_pair(left, right)) & t.mask) * 3);
    return;
  }
  const tt_u32 displacement = t.displacement[tt_pair_bucket(t, left, right)];
  TT_PREFETCH(t.entries + tt_pair_place(tt_pair_scatter(t, left, right), displacement, t.n_entries));
}

TT_HD tt_u32 tt_find_wide_rank(const TtPairTable& t, tt_u32 left, tt_u32 right) {
  tt_u32 slot = static_cast<tt_u32>(tt_hash_pair(left, right)) & t.mask;
  for (;;) {
    const tt_u32* s = t.slots + static_cast<tt_u64>(slot) * 3;
    if (s[0] == left && s[1] == right) return s[2];
    if (s[0] == TT_NONE) return TT_NONE;
    slot = (slot + 1) & t.mask;
  }
}

// Order of the rule that merges the two symbols, or TT_NONE: of two rules the lower goes first.
TT_HD tt_u32 tt_find_rank(const TtPairTable& t, tt_u32 left, tt_u32 right) {
  if (t.displacement == nullptr) return tt_find_wide_rank(t, left, right);
  const tt_u32 place =
      tt_pair_place(tt_pair_scatter(t, left, right), t.displacement[tt_pair_bucket(t, left, right)], t.n_entries);
  const tt_u64 entry = t.entries[place];
  const bool same = entry >> TT_PAIR_ORDER_BITS == (static_cast<tt_u64>(left) << TT_PAIR_ID_BITS | right);
  return same ? static_cast<tt_u32>(entry) & TT_PAIR_ORDERS : TT_NONE;
}

TT_HD tt_u32 tt_product(const TtPairTable& t, tt_u32 order) { return t.product == nullptr ? order : t.product[order]; }

TT_HD TtMerge tt_find_merge(const TtPairTable& t, tt_u32 left, tt_u32 right) {
  const tt_u32 rank = tt_find_rank(t, left, right);
  return {rank, rank == TT_NONE ? TT_NONE : tt_product(t, rank)};
}

// Calls visit(left, right, order) for each rule, in no order.
template <typename Visit>
TT_HD void tt_each_rule(const TtPairTable& t, Visit&& visit) {
  if (t.displacement == nullptr) {
    for (tt_u64 i = 0; i <= t.mask; ++i)
      if (t.slots[3 * i] != TT_NONE) visit(t.slots[3 * i], t.slots[3 * i + 1], t.slots[3 * i + 2]);
    return;
  }
  for (tt_u32 i = 0; i < t.n_entries; ++i) {
    const tt_u64 entry = t.entries[i];
    if (entry == TT_NO_PAIR) continue;
    visit(static_cast<tt_u32>(entry >> (TT_PAIR_ID_BITS + TT_PAIR_ORDER_BITS)),
          static_cast<tt_u32>(entry >> TT_PAIR_ORDER_BITS) & TT_PAIR_IDS, static_cast<tt_u32>(entry) & TT_PAIR_ORDERS);
  }
}
