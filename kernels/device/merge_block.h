// tt_merge_block: a block merges a piece of up to 4,096 bytes, all places of the lowest rank in one sweep: what repeats, and long
// pieces mostly do, costs as many sweeps as it has kinds of merges.
//
// Why this is what tt_merge_small does (the lowest rank first, of equal ones the leftmost). Let r be the lowest rank, and R its
// rule, which makes x y into X. Places of rank r are merged from the left as long as no merge makes a pair of a rank below r, for
// such a pair would be next: ranks need not ascend. So the sweep merges the places of r from the left up to and with the first
// merge that makes such a pair, and starts over. Within a sweep:
// - No merge makes a new place of rank r. A pair that a merge makes has X as a side, which has more bytes than x and than y, so
//   it is not the pair of R; and no two rules have one rank.
// - A merge takes a place of rank r away where the two share a symbol, which they do only where x = y. In a run of such places,
//   each next to the one before, the first merges and takes the second away, the third merges, and so on: every second place.
// - What a merge makes: on its left the pair of X with the symbol that stands there, which is X where that symbol was the y
//   of the place merged just before; on its right the pair of X with the symbol that stands there still unmerged.
// Each of these is seen from the symbols before the sweep, so all places are judged at once.
//
// Thread t has the 32 places from 32 t on. Masks over places are shared, one word a thread.
#pragma once
#include "look_back.h"
#include "next_bit.h"
#include "queue.h"
#include "text.h"

constexpr tt_u32 TT_PLACE_WORDS = TT_BLOCK_PIECE / 32;
static_assert(TT_PLACE_WORDS == TT_TILE_THREADS, "a word of places for each thread");

struct TtBlockPiece {
  // By place of the thread, then by thread: one bank a thread of the warp.
  tt_u32 ids[32][TT_PLACE_WORDS], ranks[32][TT_PLACE_WORDS];
  tt_u32 living[TT_PLACE_WORDS];   // places that have a symbol
  tt_u32 merging[TT_PLACE_WORDS];  // places that merge in this sweep
  tt_u32 taken[TT_PLACE_WORDS];    // places whose symbol goes into the one before
  tt_u32 lowest[TT_TILE_WARPS], stop[TT_TILE_WARPS], runs[TT_TILE_WARPS];
  tt_u32 item;

  TT_DEV tt_u32& id(tt_u32 place) { return ids[place & 31][place >> 5]; }
  TT_DEV tt_u32 next(tt_u32 place) const { return tt_next_bit(living, place + 1, TT_PLACE_WORDS); }
  TT_DEV tt_u32 previous(tt_u32 place) const { return tt_previous_bit(living, place); }
  TT_DEV static bool has(const tt_u32* mask, tt_u32 place) { return (mask[place >> 5] >> (place & 31) & 1) != 0; }
};

// The lowest of all threads' values. `lowest` is free again after the next barrier.
TT_DEV tt_u32 tt_block_min(tt_u32 value, tt_u32* lowest) {
  value = tt_warp_min(TT_ALL_LANES, value);
  if (tt_lane() == 0) lowest[tt_thread() / TT_LANES] = value;
  tt_barrier();
  for (tt_u32 w = 0; w < TT_TILE_WARPS; ++w) value = lowest[w] < value ? lowest[w] : value;
  return value;
}

// The lowest rank of the thread's places.
TT_DEV tt_u32 tt_lowest_rank(const TtBlockPiece& piece, tt_u32 joining) {
  tt_u32 lowest = TT_NONE;
  for (; joining != 0; joining &= joining - 1) {
    const tt_u32 rank = piece.ranks[tt_lowest_bit(joining)][tt_thread()];
    lowest = rank < lowest ? rank : lowest;
  }
  return lowest;
}

// The thread's places of this rank.
TT_DEV tt_u32 tt_places_of(const TtBlockPiece& piece, tt_u32 joining, tt_u32 rank) {
  tt_u32 places = 0;
  for (; joining != 0; joining &= joining - 1) {
    const tt_u32 place = tt_lowest_bit(joining);
    places |= static_cast<tt_u32>(piece.ranks[place][tt_thread()] == rank) << place;
  }
  return places;
}

// Of a run of places in `hits`, every second one, the first being the first. A run that enters a thread's word from lower ones
// enters it merging or not; a word turns that into what leaves it, and those without a place outside of `hits` do it alike:
// they keep it, or turn it round where they have an odd number. All threads call; there is a barrier inside.
TT_DEV tt_u32 tt_every_second(TtBlockPiece& piece, tt_u32 hits) {
  const tt_u32 lane = tt_lane(), warp = tt_thread() / TT_LANES, living = piece.living[tt_thread()];
  const tt_u32 others = living & ~hits;
  const tt_u32 run = others == 0 ? hits : hits & tt_bits_above(tt_highest_bit(others));  // what leaves the word
  const tt_u32 fresh = tt_ballot(TT_ALL_LANES, others != 0), odd = tt_ballot(TT_ALL_LANES, (tt_count_bits(run) & 1) != 0);
  // Whether the last place of `lanes` merges, from the last lane that begins afresh; `before`: where none does.
  const auto leaves = [&](tt_u32 lanes, bool before) {
    const tt_u32 from = fresh & lanes;
    const tt_u32 counted = from == 0 ? lanes : lanes & ~tt_bits_below(tt_highest_bit(from));
    return ((tt_count_bits(odd & counted) & 1) != 0) != (from == 0 && before);
  };
  if (lane == 0) piece.runs[warp] = static_cast<tt_u32>(leaves(TT_ALL_LANES, false)) | (fresh != 0 ? 2 : 0);
  tt_barrier();
  bool merging = false;
  for (tt_u32 w = 0; w < warp; ++w) merging = ((piece.runs[w] & 1) != 0) != ((piece.runs[w] & 2) == 0 && merging);
  merging = leaves(tt_bits_below(lane), merging);
  tt_u32 chosen = 0;
  if (hits == 0) return 0;
  for (tt_u32 bits = living; bits != 0; bits &= bits - 1) {
    const tt_u32 place = tt_lowest_bit(bits);
    merging = (hits >> place & 1) != 0 && (!merging || TT_FAULT(every_place));
    chosen |= static_cast<tt_u32>(merging) << place;
  }
  return chosen;
}

// Whether the merge at `place`, which takes `next` in, makes a pair of a lower rank.
TT_DEV bool tt_makes_lower(const TtPairTable& pairs, TtBlockPiece& piece, tt_u32 place, tt_u32 next, tt_u32 rank,
                           tt_u32 product) {
  const tt_u32 before = piece.previous(place), behind = piece.next(next);
  if (before != TT_NONE) {
    const tt_u32 left = TtBlockPiece::has(piece.taken, before) ? product : piece.id(before);
    if (tt_find_rank(pairs, left, product) < rank) return true;
  }
  return behind != TT_NONE && tt_find_rank(pairs, product, piece.id(behind)) < rank;
}

// Ranks of the thread's places that merged or stand before one that did; returns which of its places merge with the next.
TT_DEV tt_u32 tt_rank_again(const TtPairTable& pairs, TtBlockPiece& piece, tt_u32 joining) {
  const tt_u32 thread = tt_thread(), living = piece.living[thread], merged = piece.merging[thread];
  if (living == 0) return 0;
  tt_u32 next = piece.next(thread * 32 + tt_highest_bit(living));
  bool changed = next != TT_NONE && TtBlockPiece::has(piece.merging, next);
  if (merged == 0 && !changed) return joining;
  for (tt_u32 bits = living; bits != 0;) {  // downwards
    const tt_u32 at = tt_highest_bit(bits), bit = 1u << at;
    const bool has_merged = (merged & bit) != 0;
    if (has_merged || changed) {
      const tt_u32 rank = next == TT_NONE ? TT_NONE : tt_find_rank(pairs, piece.ids[at][thread], piece.id(next));
      piece.ranks[at][thread] = rank;
      joining = (joining & ~bit) | (rank != TT_NONE ? bit : 0);
    }
    next = thread * 32 + at;
    changed = has_merged;
    bits ^= bit;
  }
  return joining;
}

// Symbols of the bytes and ranks of all pairs; returns which of the thread's places merge with the next.
TT_DEV tt_u32 tt_begin_in_block(const TtGpuTables& t, const tt_u8* text, tt_u32 begin, tt_u32 bytes, TtBlockPiece& piece) {
  const tt_u32 thread = tt_thread(), first = thread * 32;
  const tt_u32 count = bytes <= first ? 0 : bytes - first < 32 ? bytes - first : 32;
  tt_u64 eight = 0;
  for (tt_u32 i = 0; i < count; ++i, eight >>= 8) {
    if (i % 8 == 0) eight = tt_read16(text, begin + first + i).low;
    piece.ids[i][thread] = t.byte_symbol[eight & 255];
  }
  piece.living[thread] = tt_bits_below(count);
  piece.taken[thread] = 0;
  tt_barrier();
  tt_u32 joining = 0;
  for (tt_u32 i = 0; i < count && first + i + 1 < bytes; ++i) {
    const tt_u32 rank = tt_find_rank(t.pairs, piece.ids[i][thread], piece.id(first + i + 1));
    piece.ranks[i][thread] = rank;
    joining |= static_cast<tt_u32>(rank != TT_NONE) << i;
  }
  return joining;
}

// Returns the places of the thread that have a symbol in the end. All threads of the block call.
TT_DEV tt_u32 tt_merge_in_block(const TtGpuTables& t, const tt_u8* text, tt_u32 begin, tt_u32 bytes, TtBlockPiece& piece) {
  const tt_u32 thread = tt_thread(), first = thread * 32;
  tt_u32 joining = tt_begin_in_block(t, text, begin, bytes, piece);
  for (;;) {
    const tt_u32 own = tt_lowest_rank(piece, joining), rank = tt_block_min(own, piece.lowest);
    if (rank == TT_NONE) return piece.living[thread];
    const tt_u32 product = tt_product(t.pairs, rank);
    tt_u32 merging = tt_every_second(piece, own == rank ? tt_places_of(piece, joining, rank) : 0);
    for (tt_u32 bits = merging; bits != 0; bits &= bits - 1) {
      const tt_u32 next = piece.next(first + tt_lowest_bit(bits));
      tt_atomic_or(piece.taken + (next >> 5), 1u << (next & 31));
    }
    tt_barrier();
    // The place that the last merge of the sweep takes in: merges are in one order with what they take.
    tt_u32 stop = TT_NONE;
    for (tt_u32 bits = merging; bits != 0 && stop == TT_NONE; bits &= bits - 1) {
      const tt_u32 place = first + tt_lowest_bit(bits), next = piece.next(place);
      if (!TT_FAULT(sweep_goes_on) && tt_makes_lower(t.pairs, piece, place, next, rank, product)) stop = next;
    }
    stop = tt_block_min(stop, piece.stop);
    if (stop < first)
      merging = 0;
    else if (stop - first < 32)
      merging &= tt_bits_below(stop - first);
    const tt_u32 upto = stop < first ? 0 : stop - first < 32 ? tt_bits_below(stop - first + 1) : TT_ALL_LANES;
    const tt_u32 gone = piece.taken[thread] & upto;
    for (tt_u32 bits = merging; bits != 0; bits &= bits - 1) piece.ids[tt_lowest_bit(bits)][thread] = product;
    piece.living[thread] &= ~gone;
    piece.merging[thread] = merging;
    piece.taken[thread] = 0;
    tt_barrier();
    joining = tt_rank_again(t.pairs, piece, joining & ~gone);
  }
}

TT_KERNEL(TT_TILE_THREADS) tt_merge_block(TtGpuParams p) {
  TT_SHARED TtBlockPiece piece;
  const tt_u32 thread = tt_thread(), count = tt_queued(p.buffers, TT_QUEUE_BLOCK);
  for (;;) {
    if (thread == 0) piece.item = tt_atomic_add(p.buffers.control + TT_CONTROL_TAKEN + TT_QUEUE_BLOCK, 1);
    tt_barrier();
    if (piece.item >= count) return;
    const tt_u64 item = p.buffers.queue[TT_QUEUE_BLOCK][piece.item];
    const tt_u32 begin = tt_item_begin(item), first = begin + thread * 32;
    const tt_u32 living = tt_merge_in_block(p.tables, p.buffers.text, begin, tt_item_bytes(item), piece);
    for (tt_u32 bits = living; bits != 0; bits &= bits - 1)
      p.buffers.token_id[first + tt_lowest_bit(bits)] = piece.ids[tt_lowest_bit(bits)][thread];
    tt_mark_tokens(p.buffers.tokens, first, living);
    tt_barrier();
  }
}
