// The kernels of planted.cpp, by name.
#pragma once
#include "device.h"

struct DemoParams {
  const tt_u32* in;
  const tt_u8* bytes;  // aligned to 16
  tt_u32* out;
  // Zero before a launch.
  tt_u32* flags;   // [blocks + 1]
  tt_u32* values;  // [blocks]
  tt_u32* ticket;
};

constexpr tt_u32 THREADS = 128;
constexpr tt_u32 WARPS = THREADS / TT_LANES;

#define DEMOS(X)                                                                                                               \
  X(missing_barrier) X(missing_warp_barrier) X(relaxed_flag) X(divergent_barrier) X(ended_thread) X(shuffle_mask)             \
  X(inactive_lane) X(other_mask) X(other_operation) X(deadlock) X(stuck_flag) X(store_beyond) X(shared_beyond)                \
  X(shared_past_end) X(unwritten_shared) X(misaligned_load) X(look_back)

#define TT_X(name) TT_KERNEL(THREADS) name(DemoParams p);
DEMOS(TT_X)
#undef TT_X
