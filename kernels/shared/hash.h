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

// Little-endian load of 1 to 8 bytes, zero-extended; reads no byte beyond `n`.
TT_HD tt_u64 tt_load_tail(const tt_u8* p, tt_u32 n) {
  tt_u64 v = 0;
  for (tt_u32 i = 0; i < n; ++i) v |= tt_u64(p[i]) << (8 * i);
  return v;
}

TT_HD tt_u64 tt_hash_bytes(const tt_u8* p, tt_u32 n) {
  tt_u64 h = TT_HASH_A * (tt_u64(n) + 1);
  tt_u32 i = 0;
  for (; i + 8 <= n; i += 8) h = tt_hash_mix((h ^ tt_load_tail(p + i, 8)) * TT_HASH_A);
  if (i < n) h = tt_hash_mix((h ^ tt_load_tail(p + i, n - i)) * TT_HASH_A);
  return tt_hash_mix(h);
}

TT_HD tt_u64 tt_hash_pair(tt_u32 a, tt_u32 b) { return tt_hash_mix(((tt_u64(a) << 32) | b) * TT_HASH_A); }
