// tt_merge_warp: a warp merges a piece of up to 256 bytes, one merge at a time, as tt_merge_small does. A lane has eight places
// side by side, so that of equal ranks the leftmost is in the lowest lane; it keeps the lowest rank of them in a register, and a
// step is a minimum over the warp, a few shuffles and two look-ups at once. A step waits for memory twice: it takes many warps to
// keep a device busy.
#pragma once
#include "next_bit.h"
#include "queue.h"
#include "text.h"

constexpr tt_u32 TT_LANE_PLACES = TT_WARP_PIECE / TT_LANES;
static_assert(TT_LANE_PLACES == 8, "places of a lane are one load of text");

// By place of the lane, then by lane: one bank a lane.
using TtWarpSymbols = tt_u32[TT_LANE_PLACES][TT_LANES];

TT_DEV tt_u32& tt_symbol_at(TtWarpSymbols& symbols, tt_u32 place) {
  return symbols[place % TT_LANE_PLACES][place / TT_LANE_PLACES];
}

// The places that have a symbol, and each lane's lowest rank.
struct TtWarpPiece {
  tt_u32 living;  // of the lane's places
  tt_u32 lowest, at;
};

// The lowest rank of the lane's places, and the first place that has it.
TT_DEV void tt_find_lowest(TtWarpPiece& piece, const TtWarpSymbols& ranks) {
  const tt_u32 lane = tt_lane();
  piece.lowest = TT_NONE;
  for (tt_u32 bits = piece.living; bits != 0; bits &= bits - 1) {
    const tt_u32 rank = ranks[tt_lowest_bit(bits)][lane];
    if (rank < piece.lowest) {
      piece.lowest = rank;
      piece.at = lane * TT_LANE_PLACES + tt_lowest_bit(bits);
    }
  }
}

// The living place behind `place`, or TT_NONE: the same in every lane. `lanes`: those that have a living place.
TT_DEV tt_u32 tt_place_behind(const TtWarpPiece& piece, tt_u32 lanes, tt_u32 place) {
  const tt_u32 lane = place / TT_LANE_PLACES;
  const tt_u32 own = tt_shuffle(TT_ALL_LANES, piece.living, lane) & tt_bits_above(place % TT_LANE_PLACES);
  const tt_u32 lanes_behind = lanes & tt_bits_above(lane);
  const tt_u32 next = lanes_behind == 0 ? lane : tt_lowest_bit(lanes_behind);
  const tt_u32 others = tt_shuffle(TT_ALL_LANES, piece.living, next);
  if (own != 0) return lane * TT_LANE_PLACES + tt_lowest_bit(own);
  return lanes_behind == 0 ? TT_NONE : next * TT_LANE_PLACES + tt_lowest_bit(others);
}

TT_DEV tt_u32 tt_place_before(const TtWarpPiece& piece, tt_u32 lanes, tt_u32 place) {
  const tt_u32 lane = place / TT_LANE_PLACES;
  const tt_u32 own = tt_shuffle(TT_ALL_LANES, piece.living, lane) & tt_bits_below(place % TT_LANE_PLACES);
  const tt_u32 lanes_before = lanes & tt_bits_below(lane);
  const tt_u32 next = lanes_before == 0 ? lane : tt_highest_bit(lanes_before);
  const tt_u32 others = tt_shuffle(TT_ALL_LANES, piece.living, next);
  if (own != 0) return lane * TT_LANE_PLACES + tt_highest_bit(own);
  return lanes_before == 0 ? TT_NONE : next * TT_LANE_PLACES + tt_highest_bit(others);
}

// Symbols of the bytes and ranks of all pairs.
TT_DEV TtWarpPiece tt_begin_in_warp(const TtGpuTables& t, const tt_u8* text, tt_u32 begin, tt_u32 bytes, TtWarpSymbols& ids,
                                    TtWarpSymbols& ranks) {
  const tt_u32 lane = tt_lane(), first = lane * TT_LANE_PLACES;
  const tt_u32 count = bytes <= first ? 0 : bytes - first < TT_LANE_PLACES ? bytes - first : TT_LANE_PLACES;
  tt_u64 eight = count == 0 ? 0 : tt_read16(text, begin + first).low;
  for (tt_u32 i = 0; i < count; ++i, eight >>= 8) ids[i][lane] = t.byte_symbol[eight & 255];
  tt_warp_barrier(TT_ALL_LANES);
  for (tt_u32 i = 0; i < count; ++i) {
    const bool has_next = first + i + 1 < bytes;
    ranks[i][lane] = has_next ? tt_find_rank(t.pairs, ids[i][lane], tt_symbol_at(ids, first + i + 1)) : TT_NONE;
  }
  TtWarpPiece piece{tt_bits_below(count), TT_NONE, 0};
  tt_find_lowest(piece, ranks);
  return piece;
}

// Returns the places of the lane that have a symbol in the end.
TT_DEV tt_u32 tt_merge_in_warp(const TtGpuTables& t, const tt_u8* text, tt_u32 begin, tt_u32 bytes, TtWarpSymbols& ids,
                               TtWarpSymbols& ranks) {
  const tt_u32 lane = tt_lane();
  TtWarpPiece piece = tt_begin_in_warp(t, text, begin, bytes, ids, ranks);
  for (;;) {
    const tt_u32 rank = tt_warp_min(TT_ALL_LANES, piece.lowest);
    if (rank == TT_NONE) return piece.living;
    const tt_u32 first = tt_lowest_bit(tt_ballot(TT_ALL_LANES, piece.lowest == rank));
    const tt_u32 at = tt_shuffle(TT_ALL_LANES, piece.at, first), product = tt_product(t.pairs, rank);
    const tt_u32 lanes = tt_ballot(TT_ALL_LANES, piece.living != 0);
    const tt_u32 next = tt_place_behind(piece, lanes, at);  // there is one: it has a rank
    const tt_u32 behind = tt_place_behind(piece, lanes, next), before = tt_place_before(piece, lanes, at);
    // Lane 0 makes the look-up on the left and lane 1 the one on the right, while they still see the symbols as they were.
    const bool is_left = lane == 0;
    const tt_u32 other = is_left ? before : behind;
    tt_u32 made = TT_NONE;
    if (lane < 2 && other != TT_NONE) {
      const tt_u32 neighbour = tt_symbol_at(ids, other);
      made = tt_find_rank(t.pairs, is_left ? neighbour : product, is_left ? product : neighbour);
    }
    const tt_u32 left = tt_shuffle(TT_ALL_LANES, made, 0), right = tt_shuffle(TT_ALL_LANES, made, 1);
    tt_warp_barrier(TT_ALL_LANES);
    const bool has_at = at / TT_LANE_PLACES == lane, has_next = next / TT_LANE_PLACES == lane;
    const bool has_before = before != TT_NONE && before / TT_LANE_PLACES == lane;
    if (has_at) {
      tt_symbol_at(ids, at) = product;
      tt_symbol_at(ranks, at) = right;
    }
    if (has_before) tt_symbol_at(ranks, before) = left;
    if (has_next) piece.living ^= 1u << next % TT_LANE_PLACES;
    if (has_at || has_next || has_before) tt_find_lowest(piece, ranks);
    tt_warp_barrier(TT_ALL_LANES);
  }
}

TT_KERNEL(TT_TILE_THREADS) tt_merge_warp(TtGpuParams p) {
  TT_SHARED TtWarpSymbols all_ids[TT_TILE_THREADS / TT_LANES], all_ranks[TT_TILE_THREADS / TT_LANES];
  const tt_u32 lane = tt_lane(), warp = tt_thread() / TT_LANES;
  const tt_u32 count = tt_queued(p.buffers, TT_QUEUE_WARP);
  for (tt_u32 k; (k = tt_take(p.buffers, TT_QUEUE_WARP, 1)) < count;) {
    const tt_u64 item = p.buffers.queue[TT_QUEUE_WARP][k];
    TtWarpSymbols& ids = all_ids[warp];
    const tt_u32 begin = tt_item_begin(item), first = begin + lane * TT_LANE_PLACES;
    const tt_u32 living = tt_merge_in_warp(p.tables, p.buffers.text, begin, tt_item_bytes(item), ids, all_ranks[warp]);
    for (tt_u32 bits = living; bits != 0; bits &= bits - 1)
      p.buffers.token_id[first + tt_lowest_bit(bits)] = ids[tt_lowest_bit(bits)][lane];
    tt_mark_tokens(p.buffers.tokens, first, living);
    tt_warp_barrier(TT_ALL_LANES);
  }
}
