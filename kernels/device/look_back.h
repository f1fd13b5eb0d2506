// A scan of one value a thread over all tiles of a launch, in one pass over memory: *decoupled look-back* (Merrill and Garland,
// 2016). A tile publishes what it comes to alone, then what everything up to it comes to; a tile that waits for the second
// combines what its predecessors have published of the first. An operation is associative, need not commute, and has the
// identity 0; its values are below 2^30, so that a status fits the same word and the two can never be seen apart.
// Not here: operations (monoid.h has one), and what a kernel makes of the result.
#pragma once
#include "abi.h"
#include "device.h"

constexpr tt_u32 TT_LOOK_TILE = 1u << 30;  // status of a word: 0 nothing yet, 1 the tile alone, 2 everything up to and with it
constexpr tt_u32 TT_LOOK_ALL = 2u << 30;
constexpr tt_u32 TT_LOOK_VALUE = TT_LOOK_TILE - 1;
constexpr tt_u32 TT_TILE_WARPS = TT_TILE_THREADS / TT_LANES;

// Shared memory of a scan.
struct TtScan {
  tt_u32 ticket, before;
  tt_u32 warp[TT_TILE_WARPS];
};

// The place of this tile in the order of the scan. Tickets are drawn by blocks that run, so whoever has one may wait for all
// lower ones, whatever order a device starts blocks in. Every thread of the block calls it; it ends with a barrier.
TT_DEV tt_u32 tt_take_ticket(tt_u32* counter, TtScan& scan) {
  if (tt_thread() == 0) scan.ticket = tt_atomic_add(counter, 1);
  tt_barrier();
  return scan.ticket;
}

// What the values of the lower threads of the block come to; `total` receives that of all of them.
template <typename Operation>
TT_DEV tt_u32 tt_scan_block(const Operation& operation, tt_u32 value, TtScan& scan, tt_u32& total) {
  const tt_u32 lane = tt_lane(), warp = tt_thread() / TT_LANES;
  tt_u32 up_to = value;
  for (tt_u32 d = 1; d < TT_LANES; d *= 2) {
    const tt_u32 lower = tt_shuffle_up(TT_ALL_LANES, up_to, d);
    if (lane >= d) up_to = operation(lower, up_to);
  }
  if (lane == TT_LANES - 1) scan.warp[warp] = up_to;
  tt_barrier();
  tt_u32 before = 0;
  total = 0;
  for (tt_u32 w = 0; w < TT_TILE_WARPS; ++w) {
    if (w == warp) before = total;
    total = operation(total, scan.warp[w]);
  }
  const tt_u32 lower = tt_shuffle_up(TT_ALL_LANES, up_to, 1);
  return lane == 0 ? before : operation(before, lower);
}

// What everything before the tile with this ticket comes to; the tile itself comes to `total`. All lanes of one warp call it.
template <typename Operation>
TT_DEV tt_u32 tt_look_back(const Operation& operation, tt_u32* words, tt_u32 ticket, tt_u32 total) {
  const tt_u32 lane = tt_lane();
  if (ticket > 0 && lane == 0) tt_store_release(words + ticket, TT_LOOK_TILE | total);
  tt_u32 before = 0, all = 0;
  for (tt_u32 end = ticket; end > 0 && all == 0; end -= TT_LANES) {  // 32 predecessors at once, the nearest in lane 0
    tt_u32 word, wanted;
    for (;;) {
      word = lane < end ? tt_load_acquire(words + (end - 1 - lane)) : TT_LOOK_ALL;
      all = tt_ballot(TT_ALL_LANES, word >= TT_LOOK_ALL);
      wanted = all == 0 ? TT_ALL_LANES : all ^ (all - 1);  // up to and with the nearest that knows everything
      if ((tt_ballot(TT_ALL_LANES, word < TT_LOOK_TILE) & wanted) == 0) break;
      tt_yield();
    }
    tt_u32 value = (wanted >> lane & 1) != 0 ? word & TT_LOOK_VALUE : 0;
    for (tt_u32 d = 1; d < TT_LANES; d *= 2) {
      const tt_u32 earlier = tt_shuffle_down(TT_ALL_LANES, value, d);
      if (lane + d < TT_LANES) value = operation(earlier, value);
    }
    before = operation(tt_shuffle(TT_ALL_LANES, value, 0), before);
  }
  if (lane == 0) tt_store_release(words + ticket, TT_LOOK_ALL | operation(before, total));
  return before;
}

// What the values of all lower threads of this tile, and of all tiles with lower tickets, come to.
template <typename Operation>
TT_DEV tt_u32 tt_scan_tiles(const Operation& operation, tt_u32 value, tt_u32* words, tt_u32 ticket, TtScan& scan) {
  tt_u32 total;
  const tt_u32 before = tt_scan_block(operation, value, scan, total);
  if (tt_thread() < TT_LANES) {
    const tt_u32 tiles = tt_look_back(operation, words, ticket, total);
    if (tt_lane() == 0) scan.before = tiles;
  }
  tt_barrier();
  return operation(scan.before, before);
}
