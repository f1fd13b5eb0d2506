// Work that one kernel leaves to the next: items `begin | bytes << 32`. Pushing is one atomic addition a warp; taking is another,
// so that a launch of any number of blocks empties a queue and long items hold nobody up. Items lie in no order, and none is
// needed: a token is told by the byte at which it begins.
#pragma once
#include "abi.h"
#include "device.h"

// One item for each lane that has one; all lanes of the warp call. There is room: pieces share no byte, and each queue has a
// shortest piece.
TT_DEV void tt_push(const TtGpuBuffers& b, TtQueue queue, bool has_item, tt_u32 begin, tt_u32 bytes) {
  const tt_u32 lanes = tt_ballot(TT_ALL_LANES, has_item);
  if (lanes == 0) return;
  const tt_u32 leader = tt_lowest_bit(lanes);
  tt_u32 first = 0;
  if (tt_lane() == leader) first = tt_atomic_add(b.control + TT_CONTROL_QUEUED + queue, tt_count_bits(lanes));
  first = tt_shuffle(TT_ALL_LANES, first, leader);
  const tt_u32 below = tt_count_bits(lanes & ((1u << tt_lane()) - 1));
  if (has_item) b.queue[queue][first + below] = begin | static_cast<tt_u64>(bytes) << 32;
}

// Items in a queue that an earlier launch filled.
TT_DEV tt_u32 tt_queued(const TtGpuBuffers& b, TtQueue queue) { return b.control[TT_CONTROL_QUEUED + queue]; }

// Index of the first of `many` items that now belong to the warp; all its lanes call. May lie behind the last one.
TT_DEV tt_u32 tt_take(const TtGpuBuffers& b, TtQueue queue, tt_u32 many) {
  tt_u32 first = 0;
  if (tt_lane() == 0) first = tt_atomic_add(b.control + TT_CONTROL_TAKEN + queue, many);
  return tt_shuffle(TT_ALL_LANES, first, 0);
}

TT_DEV tt_u32 tt_item_begin(tt_u64 item) { return static_cast<tt_u32>(item); }
TT_DEV tt_u32 tt_item_bytes(tt_u64 item) { return static_cast<tt_u32>(item >> 32); }

// Marks up to 32 tokens that begin at `begin` and behind it. Words of the mask are shared by pieces, hence by blocks.
TT_DEV void tt_mark_tokens(tt_u32* tokens, tt_u32 begin, tt_u32 bits) {
  const tt_u32 shift = begin & 31, low = bits << shift, high = shift == 0 ? 0 : bits >> (32 - shift);
  if (low != 0) tt_atomic_or(tokens + (begin >> 5), low);
  if (high != 0) tt_atomic_or(tokens + (begin >> 5) + 1, high);
}
