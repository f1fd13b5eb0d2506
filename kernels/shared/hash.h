// The one portable hash of tables that are written to a program file: the same on every machine, two multiplications a word.
// Not keyed, since every reader must find the same slots: a vocabulary made to collide is refused when tables are built
// (native/compile/probing.h). Every hit compares the whole key.
#pragma once
#include "target.h"

// A look-up is one random access to a table of megabytes; on a host the next ones are asked for ahead.
#if defined(__GNUC__) && !defined(__CUDACC_RTC__) && !defined(__CUDACC__)
#define TT_PREFETCH(address) __builtin_prefetch(address)
#else
#define TT_PREFETCH(address) static_cast<void>(0)
#endif

constexpr tt_u64 TT_HASH_A = 0x9E3779B97F4A7C15ull;
constexpr tt_u64 TT_HASH_B = 0xD6E8FEB86659FD93ull;

TT_HD tt_u64 tt_hash_mix(tt_u64 h) {
  h ^= h >> 32;
  h *= TT_HASH_B;
  h ^= h >> 29;
  return h;
}

// Little-endian loads, written so that a compiler makes one of each; the first bytes may lie anywhere.
TT_HD tt_u64 tt_load4(const tt_u8* p) {
  return tt_u32(p[0]) | tt_u32(p[1]) << 8 | tt_u32(p[2]) << 16 | tt_u32(p[3]) << 24;
}
TT_HD tt_u64 tt_load8(const tt_u8* p) {
  return tt_u64(p[0]) | tt_u64(p[1]) << 8 | tt_u64(p[2]) << 16 | tt_u64(p[3]) << 24 | tt_u64(p[4]) << 32 | tt_u64(p[5]) << 40 |
         tt_u64(p[6]) << 48 | tt_u64(p[7]) << 56;
}

// 0 to 8 bytes, zero-extended; reads no byte beyond `n`: loads that overlap, no loop.
TT_HD tt_u64 tt_load_tail(const tt_u8* p, tt_u32 n) {
  if (n >= 8) return tt_load8(p);
  if (n >= 4) return tt_load4(p) | tt_load4(p + n - 4) << (8 * (n - 4));
  if (n == 0) return 0;
  return p[0] | tt_u64(p[n >> 1]) << (8 * (n >> 1)) | tt_u64(p[n - 1]) << (8 * (n - 1));
}

TT_HD tt_u64 tt_hash_bytes(const tt_u8* p, tt_u32 n) {
  tt_u64 h = TT_HASH_A * (tt_u64(n) + 1);
  tt_u32 i = 0;
  for (; i + 8 <= n; i += 8) h = tt_hash_mix((h ^ tt_load8(p + i)) * TT_HASH_A);
  if (i < n) h = tt_hash_mix((h ^ tt_load_tail(p + i, n - i)) * TT_HASH_A);
  return tt_hash_mix(h);
}

TT_HD tt_u64 tt_hash_pair(tt_u32 a, tt_u32 b) { return tt_hash_mix(((tt_u64(a) << 32) | b) * TT_HASH_A); }
