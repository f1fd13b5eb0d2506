// What device code may assume of its compiler: NVRTC gives the real thing, g++ the emulator of tests/simt, under the same names.
// Kernels use these names and nothing else of CUDA: no volatile, no fence, no cooperative groups. Words that another block reads
// in the same launch are published by tt_store_release and read by tt_load_acquire, or changed by the atomics below.
#pragma once
#include "target.h"

constexpr tt_u32 TT_LANES = 32;
constexpr tt_u32 TT_ALL_LANES = 0xFFFFFFFFu;

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)

#define TT_DEV __device__ __forceinline__
// 8 blocks to a multiprocessor: 1,024 threads, as many as sm_75 has. Without a number ptxas aims at 32 registers, and spills.
#define TT_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads, 8)
#define TT_SHARED __shared__
#define TT_FAULT(name) false

TT_DEV tt_u32 tt_thread() { return threadIdx.x; }
TT_DEV tt_u32 tt_lane() { return threadIdx.x & (TT_LANES - 1); }
TT_DEV tt_u32 tt_threads() { return blockDim.x; }
TT_DEV tt_u32 tt_block() { return blockIdx.x; }
TT_DEV tt_u32 tt_blocks() { return gridDim.x; }

TT_DEV void tt_barrier() { __syncthreads(); }
TT_DEV void tt_warp_barrier(tt_u32 lanes) { __syncwarp(lanes); }
template <typename T>
TT_DEV T tt_shuffle(tt_u32 lanes, T value, tt_u32 from) {
  return __shfl_sync(lanes, value, static_cast<int>(from));
}
// The value of the lane `distance` below; one's own where there is none.
template <typename T>
TT_DEV T tt_shuffle_up(tt_u32 lanes, T value, tt_u32 distance) {
  return __shfl_up_sync(lanes, value, distance);
}
template <typename T>
TT_DEV T tt_shuffle_down(tt_u32 lanes, T value, tt_u32 distance) {
  return __shfl_down_sync(lanes, value, distance);
}
TT_DEV tt_u32 tt_ballot(tt_u32 lanes, bool set) { return __ballot_sync(lanes, set); }
TT_DEV tt_u32 tt_warp_min(tt_u32 lanes, tt_u32 value) {  // every lane of `lanes` gets it; all 32 before sm_80
#if __CUDA_ARCH__ >= 800
  return __reduce_min_sync(lanes, value);
#else
  for (tt_u32 d = TT_LANES / 2; d > 0; d /= 2) {
    const tt_u32 other = __shfl_xor_sync(lanes, value, static_cast<int>(d));
    value = other < value ? other : value;
  }
  return value;
#endif
}

TT_DEV tt_u32 tt_atomic_add(tt_u32* at, tt_u32 value) { return atomicAdd(at, value); }
TT_DEV tt_u32 tt_atomic_or(tt_u32* at, tt_u32 value) { return atomicOr(at, value); }
TT_DEV tt_u32 tt_load_acquire(const tt_u32* at) {
  tt_u32 value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
TT_DEV void tt_store_release(tt_u32* at, tt_u32 value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
// Between two looks at a word that another block will change.
TT_DEV void tt_yield() { __nanosleep(32); }

TT_DEV tt_u32 tt_count_bits(tt_u32 bits) { return __popc(bits); }
TT_DEV tt_u32 tt_lowest_bit(tt_u32 bits) { return __ffs(static_cast<int>(bits)) - 1; }  // bits != 0
TT_DEV tt_u32 tt_highest_bit(tt_u32 bits) { return 31 - __clz(static_cast<int>(bits)); }  // bits != 0

// 16 bytes of the text at once; `at` is aligned so.
struct tt_bytes16 {
  tt_u32 word[4];
};
TT_DEV tt_bytes16 tt_load16(const tt_u8* at) {
  const uint4 v = __ldg(reinterpret_cast<const uint4*>(at));
  return {{v.x, v.y, v.z, v.w}};
}

#else

#include "simt.h"

#endif
