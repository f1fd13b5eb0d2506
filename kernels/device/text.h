// Reading text from any address: the hardware loads 16 bytes at multiples of 16, and a piece begins anywhere.
#pragma once
#include "device.h"

struct TtText16 {
  tt_u64 low, high;
};

// text[at, at + 16) where `text` is aligned; reads up to 31 bytes behind `at`, for which there is TT_TEXT_PADDING.
TT_DEV TtText16 tt_read16(const tt_u8* text, tt_u32 at) {
  const tt_u8* const aligned = text + (at & ~15u);
  const tt_bytes16 a = tt_load16(aligned), b = tt_load16(aligned + 16);
  const auto wide = [](tt_u32 low, tt_u32 high) { return low | static_cast<tt_u64>(high) << 32; };
  const bool upper = (at & 8) != 0;
  const tt_u64 a0 = wide(a.word[0], a.word[1]), a1 = wide(a.word[2], a.word[3]);
  const tt_u64 b0 = wide(b.word[0], b.word[1]), b1 = wide(b.word[2], b.word[3]);
  const tt_u64 x = upper ? a1 : a0, y = upper ? b0 : a1, z = upper ? b1 : b0;
  const tt_u32 shift = (at & 7) * 8;  // a shift by 64 is none: hence two steps to the left
  return {x >> shift | y << 1 << (63 - shift), y >> shift | z << 1 << (63 - shift)};
}

// The first `bytes` of eight, zeros behind them.
TT_DEV tt_u64 tt_keep_bytes(tt_u64 eight, tt_u32 bytes) {
  return bytes >= 8 ? eight : eight & ((1ull << 8 * bytes) - 1);
}
