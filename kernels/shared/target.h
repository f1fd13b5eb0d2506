// What a shared header may assume of its compiler: fixed-width types and the host/device mark.
// Headers in kernels/shared are compiled by g++/clang (native/) and by NVRTC (kernels/): they include nothing but each other.
#pragma once

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define TT_HD __host__ __device__ __forceinline__
#else
#define TT_HD inline
#endif

using tt_u8 = unsigned char;
using tt_u16 = unsigned short;
using tt_u32 = unsigned int;
using tt_u64 = unsigned long long;
using tt_i32 = int;
using tt_i64 = long long;

static_assert(sizeof(tt_u16) == 2 && sizeof(tt_u32) == 4 && sizeof(tt_u64) == 8, "fixed-width types");

// "no id", "no state", "no token" in every table of a program.
constexpr tt_u32 TT_NONE = 0xFFFFFFFFu;
