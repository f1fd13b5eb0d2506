// The scan of kernels/device/look_back.h alone, of elements of any monoid: a launch goes on where earlier tiles have published
// what the caller says, so that every state that a tile can meet is met, however few blocks run at once.
#include "look_back.h"
#include "launch.h"
#include "monoid.h"

struct LookBackParams {
  const tt_u8* compose;
  const tt_u32* values;  // [tiles * TT_TILE_THREADS]
  tt_u32* words;         // [tiles]
  tt_u32* counter;
  tt_u32* before;        // [tiles * TT_TILE_THREADS]
  tt_u32 n_elements, tiles;
};

TT_KERNEL(TT_TILE_THREADS) look_back_scan(LookBackParams p) {
  TT_SHARED TtScan scan;
  const tt_u32 ticket = tt_take_ticket(p.counter, scan);
  if (ticket >= p.tiles) return;
  const tt_u32 at = ticket * TT_TILE_THREADS + tt_thread();
  p.before[at] = tt_scan_tiles(TtComposition{p.compose, p.n_elements}, p.values[at], p.words, ticket, scan);
}

// Tiles from `counter` on run in `blocks` blocks. Nothing, or what the emulator found, in `report`.
extern "C" int look_back_run(const LookBackParams* params, tt_u32 blocks, tt_u64 seed, tt_u32 resident_blocks, char* report,
                             tt_u64 report_bytes) {
  const SimtOptions options{seed, resident_blocks, true};
  return simt_launch("look_back_scan", look_back_scan, *params, blocks, TT_TILE_THREADS, options, report, report_bytes);
}
