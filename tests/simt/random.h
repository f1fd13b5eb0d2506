// Random numbers that a seed determines, for orders of threads and poison: xorshift, begun by the finalizer of SplitMix64.
#pragma once
#include "device.h"

namespace simt {

inline tt_u64 mix(tt_u64 x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

class Random {
 public:
  Random(tt_u64 seed, tt_u64 stream) : state_(mix(seed * 0x9E3779B97F4A7C15ull + mix(stream + 1)) | 1) {}
  // 0 to n - 1.
  tt_u32 below(tt_u32 n) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<tt_u32>((state_ >> 32) * n >> 32);
  }

 private:
  tt_u64 state_;
};

}  // namespace simt
