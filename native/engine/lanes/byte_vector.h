// One register of bytes, as wide as the level has them, and the few operations that the scans are made of. The plain level has
// none: TOKTIER_BYTE_VECTOR is 0 there and a lane source takes its scalar form.
// For lane sources only: everything is local to the level (lanes.h says why).
#pragma once
#include <cstdint>
#include <cstring>

#include "lanes.h"

#define TOKTIER_LANE_IS_neon 1
#define TOKTIER_LANE_WORD_(level) TOKTIER_LANE_JOIN(TOKTIER_LANE_IS_, level)

#if defined(__GNUC__) && !defined(__clang__) && defined(__AVX512F__)
// GCC 12 takes the deliberately undefined operands of its own AVX-512 intrinsics for a fault (PR 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#if defined(__AVX512VBMI__) && defined(__AVX512BW__)
#define TOKTIER_BYTE_VECTOR 64
#include <immintrin.h>
#elif defined(__AVX2__)
#define TOKTIER_BYTE_VECTOR 32
#include <immintrin.h>
#elif defined(__SSE4_1__) && defined(__SSSE3__)
#define TOKTIER_BYTE_VECTOR 16
#include <immintrin.h>
#elif defined(__aarch64__) && TOKTIER_LANE_WORD_(TOKTIER_LANE)
#define TOKTIER_BYTE_VECTOR 16
#define TOKTIER_BYTE_NEON 1
#include <arm_neon.h>
#else
#define TOKTIER_BYTE_VECTOR 0
#endif

#if TOKTIER_BYTE_VECTOR
namespace toktier {
namespace TOKTIER_LANE_NAMESPACE {
namespace {

#if TOKTIER_BYTE_VECTOR == 64

using Bytes = __m512i;
TOKTIER_INLINE Bytes load(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
// The first `count` bytes at p, below 64, and zeros; nothing behind them is read.
TOKTIER_INLINE Bytes load_part(const std::uint8_t* p, std::uint32_t count) {
  return _mm512_maskz_loadu_epi8((std::uint64_t{1} << count) - 1, p);
}
TOKTIER_INLINE Bytes fill(std::uint8_t b) { return _mm512_set1_epi8(static_cast<char>(b)); }
TOKTIER_INLINE Bytes both(Bytes a, Bytes b) { return _mm512_and_si512(a, b); }
TOKTIER_INLINE Bytes either(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
TOKTIER_INLINE Bytes differ(Bytes a, Bytes b) { return _mm512_xor_si512(a, b); }
TOKTIER_INLINE Bytes high_nibble(Bytes a) { return _mm512_and_si512(_mm512_srli_epi16(a, 4), fill(15)); }
TOKTIER_INLINE Bytes less_or_zero(Bytes a, Bytes b) { return _mm512_subs_epu8(a, b); }
// Bit i: byte i is not zero; is negative; equals b.
TOKTIER_INLINE std::uint64_t nonzero(Bytes a) { return _mm512_test_epi8_mask(a, a); }
TOKTIER_INLINE std::uint64_t negative(Bytes a) { return _mm512_movepi8_mask(a); }
TOKTIER_INLINE std::uint64_t equal(Bytes a, Bytes b) { return _mm512_cmpeq_epi8_mask(a, b); }
// table[i], for i below 16.
struct Table16 {
  Bytes rows;
  TOKTIER_INLINE explicit Table16(const std::uint8_t* table)
      : rows(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)))) {}
  TOKTIER_INLINE Bytes operator[](Bytes i) const { return _mm512_shuffle_epi8(rows, i); }
};
// table[i & 63].
struct Table64 {
  Bytes rows;
  TOKTIER_INLINE explicit Table64(const std::uint8_t* table) : rows(load(table)) {}
  TOKTIER_INLINE Bytes operator[](Bytes i) const { return _mm512_permutexvar_epi8(i, rows); }
};

#elif TOKTIER_BYTE_VECTOR == 32

using Bytes = __m256i;
TOKTIER_INLINE Bytes load(const std::uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
TOKTIER_INLINE void store(std::uint8_t* p, Bytes a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a); }
TOKTIER_INLINE Bytes fill(std::uint8_t b) { return _mm256_set1_epi8(static_cast<char>(b)); }
TOKTIER_INLINE Bytes both(Bytes a, Bytes b) { return _mm256_and_si256(a, b); }
TOKTIER_INLINE Bytes either(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
TOKTIER_INLINE Bytes differ(Bytes a, Bytes b) { return _mm256_xor_si256(a, b); }
TOKTIER_INLINE Bytes high_nibble(Bytes a) { return _mm256_and_si256(_mm256_srli_epi16(a, 4), fill(15)); }
TOKTIER_INLINE Bytes less_or_zero(Bytes a, Bytes b) { return _mm256_subs_epu8(a, b); }
TOKTIER_INLINE Bytes more_or_all(Bytes a, Bytes b) { return _mm256_adds_epu8(a, b); }
// Where the top bit of `second` is set, b, else a; and bit 4 of each byte as its top bit, beside bits that mean nothing.
TOKTIER_INLINE Bytes choose(Bytes a, Bytes b, Bytes second) { return _mm256_blendv_epi8(a, b, second); }
TOKTIER_INLINE Bytes bit4_on_top(Bytes a) { return _mm256_slli_epi16(a, 3); }
TOKTIER_INLINE std::uint64_t negative(Bytes a) { return static_cast<std::uint32_t>(_mm256_movemask_epi8(a)); }
TOKTIER_INLINE std::uint64_t equal(Bytes a, Bytes b) { return negative(_mm256_cmpeq_epi8(a, b)); }
TOKTIER_INLINE std::uint64_t nonzero(Bytes a) { return equal(a, fill(0)) ^ 0xFFFFFFFFull; }
struct Table16 {
  Bytes rows;
  TOKTIER_INLINE explicit Table16(const std::uint8_t* table)
      : rows(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)))) {}
  TOKTIER_INLINE Bytes operator[](Bytes i) const { return _mm256_shuffle_epi8(rows, i); }
};
struct Table64 {
  Table16 a, b, c, d;
  TOKTIER_INLINE explicit Table64(const std::uint8_t* table) : a(table), b(table + 16), c(table + 32), d(table + 48) {}
  // An index outside of a quarter gets its high bit set, which makes the shuffle give 0.
  TOKTIER_INLINE static Bytes in_quarter(Bytes i, std::uint8_t quarter) {
    return more_or_all(differ(i, fill(quarter)), fill(0x70));
  }
  TOKTIER_INLINE Bytes operator[](Bytes i) const {
    i = both(i, fill(63));
    return either(either(a[in_quarter(i, 0)], b[in_quarter(i, 16)]), either(c[in_quarter(i, 32)], d[in_quarter(i, 48)]));
  }
};

#elif defined(TOKTIER_BYTE_NEON)

using Bytes = uint8x16_t;
TOKTIER_INLINE Bytes load(const std::uint8_t* p) { return vld1q_u8(p); }
TOKTIER_INLINE void store(std::uint8_t* p, Bytes a) { vst1q_u8(p, a); }
TOKTIER_INLINE Bytes fill(std::uint8_t b) { return vdupq_n_u8(b); }
TOKTIER_INLINE Bytes both(Bytes a, Bytes b) { return vandq_u8(a, b); }
TOKTIER_INLINE Bytes either(Bytes a, Bytes b) { return vorrq_u8(a, b); }
TOKTIER_INLINE Bytes differ(Bytes a, Bytes b) { return veorq_u8(a, b); }
TOKTIER_INLINE Bytes high_nibble(Bytes a) { return vshrq_n_u8(a, 4); }
TOKTIER_INLINE Bytes less_or_zero(Bytes a, Bytes b) { return vqsubq_u8(a, b); }
TOKTIER_INLINE Bytes choose(Bytes a, Bytes b, Bytes second) {
  return vbslq_u8(vcltzq_s8(vreinterpretq_s8_u8(second)), b, a);
}
TOKTIER_INLINE Bytes bit4_on_top(Bytes a) { return vshlq_n_u8(a, 3); }
TOKTIER_INLINE Bytes more_or_all(Bytes a, Bytes b) { return vqaddq_u8(a, b); }
// One bit of each lane that is all ones.
TOKTIER_INLINE std::uint64_t bits_of(uint8x16_t lanes) {
  const uint8x16_t weights = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const uint8x16_t kept = vandq_u8(lanes, weights);
  return static_cast<std::uint64_t>(vaddv_u8(vget_low_u8(kept))) | static_cast<std::uint64_t>(vaddv_u8(vget_high_u8(kept))) << 8;
}
TOKTIER_INLINE std::uint64_t negative(Bytes a) { return bits_of(vcltzq_s8(vreinterpretq_s8_u8(a))); }
TOKTIER_INLINE std::uint64_t equal(Bytes a, Bytes b) { return bits_of(vceqq_u8(a, b)); }
TOKTIER_INLINE std::uint64_t nonzero(Bytes a) { return bits_of(vtstq_u8(a, a)); }
struct Table16 {
  Bytes rows;
  TOKTIER_INLINE explicit Table16(const std::uint8_t* table) : rows(vld1q_u8(table)) {}
  TOKTIER_INLINE Bytes operator[](Bytes i) const { return vqtbl1q_u8(rows, i); }
};
struct Table64 {
  uint8x16x4_t rows;
  TOKTIER_INLINE explicit Table64(const std::uint8_t* table)
      : rows{{vld1q_u8(table), vld1q_u8(table + 16), vld1q_u8(table + 32), vld1q_u8(table + 48)}} {}
  TOKTIER_INLINE Bytes operator[](Bytes i) const { return vqtbl4q_u8(rows, vandq_u8(i, vdupq_n_u8(63))); }
};

#else

using Bytes = __m128i;
TOKTIER_INLINE Bytes load(const std::uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
TOKTIER_INLINE void store(std::uint8_t* p, Bytes a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), a); }
TOKTIER_INLINE Bytes fill(std::uint8_t b) { return _mm_set1_epi8(static_cast<char>(b)); }
TOKTIER_INLINE Bytes both(Bytes a, Bytes b) { return _mm_and_si128(a, b); }
TOKTIER_INLINE Bytes either(Bytes a, Bytes b) { return _mm_or_si128(a, b); }
TOKTIER_INLINE Bytes differ(Bytes a, Bytes b) { return _mm_xor_si128(a, b); }
TOKTIER_INLINE Bytes high_nibble(Bytes a) { return _mm_and_si128(_mm_srli_epi16(a, 4), fill(15)); }
TOKTIER_INLINE Bytes less_or_zero(Bytes a, Bytes b) { return _mm_subs_epu8(a, b); }
TOKTIER_INLINE Bytes more_or_all(Bytes a, Bytes b) { return _mm_adds_epu8(a, b); }
TOKTIER_INLINE Bytes choose(Bytes a, Bytes b, Bytes second) { return _mm_blendv_epi8(a, b, second); }
TOKTIER_INLINE Bytes bit4_on_top(Bytes a) { return _mm_slli_epi16(a, 3); }
TOKTIER_INLINE std::uint64_t negative(Bytes a) { return static_cast<std::uint32_t>(_mm_movemask_epi8(a)); }
TOKTIER_INLINE std::uint64_t equal(Bytes a, Bytes b) { return negative(_mm_cmpeq_epi8(a, b)); }
TOKTIER_INLINE std::uint64_t nonzero(Bytes a) { return equal(a, fill(0)) ^ 0xFFFFull; }
struct Table16 {
  Bytes rows;
  TOKTIER_INLINE explicit Table16(const std::uint8_t* table) : rows(load(table)) {}
  TOKTIER_INLINE Bytes operator[](Bytes i) const { return _mm_shuffle_epi8(rows, i); }
};
struct Table64 {
  Table16 a, b, c, d;
  TOKTIER_INLINE explicit Table64(const std::uint8_t* table) : a(table), b(table + 16), c(table + 32), d(table + 48) {}
  TOKTIER_INLINE static Bytes in_quarter(Bytes i, std::uint8_t quarter) {
    return more_or_all(differ(i, fill(quarter)), fill(0x70));
  }
  TOKTIER_INLINE Bytes operator[](Bytes i) const {
    i = both(i, fill(63));
    return either(either(a[in_quarter(i, 0)], b[in_quarter(i, 16)]), either(c[in_quarter(i, 32)], d[in_quarter(i, 48)]));
  }
};

#endif

constexpr std::uint32_t vector_size = TOKTIER_BYTE_VECTOR;

// Bits of 64 bytes at p, one register after the other: `mask_of(q)` gives those of the register at q.
template <typename MaskOf>
TOKTIER_INLINE std::uint64_t mask64(const std::uint8_t* p, const MaskOf& mask_of) {
#if TOKTIER_BYTE_VECTOR == 64
  return mask_of(p);
#elif TOKTIER_BYTE_VECTOR == 32
  return mask_of(p) | mask_of(p + 32) << 32;
#else
  return mask_of(p) | mask_of(p + 16) << 16 | mask_of(p + 32) << 32 | mask_of(p + 48) << 48;
#endif
}

}  // namespace
}  // namespace TOKTIER_LANE_NAMESPACE
}  // namespace toktier
#endif
