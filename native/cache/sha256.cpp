#include "cache/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace toktier::cache {

namespace {

alignas(16) constexpr std::uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(const std::uint8_t* p) {
  return std::uint32_t(p[0]) << 24 | std::uint32_t(p[1]) << 16 | std::uint32_t(p[2]) << 8 | p[3];
}

void compress_plain(std::uint32_t* state, const std::uint8_t* blocks, std::size_t count) {
  for (; count != 0; --count, blocks += 64) {
    std::uint32_t w[64];
    for (int i = 0; i < 16; ++i) w[i] = big_endian(blocks + 4 * i);
    for (int i = 16; i < 64; ++i) {
      const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    std::uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    std::uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; ++i) {
      const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
      const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
  }
}

#if defined(__x86_64__)
// The instructions keep the state as (A, B, E, F) and (C, D, G, H).
__attribute__((target("sha,sse4.1,ssse3"))) void compress_sha(std::uint32_t* state, const std::uint8_t* blocks,
                                                              std::size_t count) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  __m128i* const out = reinterpret_cast<__m128i*>(state);
  const __m128i low = _mm_shuffle_epi32(_mm_loadu_si128(out), 0xB1);
  const __m128i high = _mm_shuffle_epi32(_mm_loadu_si128(out + 1), 0x1B);
  __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xF0);
  for (; count != 0; --count, blocks += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks) + i), swap);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {  // four rounds each; w holds the words of this group and the three after it
      const __m128i k = _mm_add_epi32(w[r & 3], _mm_load_si128(reinterpret_cast<const __m128i*>(kRound) + r));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, k);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(k, 0x0E));
      if (r < 12) {
        const __m128i seventh = _mm_alignr_epi8(w[(r + 3) & 3], w[(r + 2) & 3], 4);
        const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[r & 3], w[(r + 1) & 3]), seventh);
        w[r & 3] = _mm_sha256msg2_epu32(sum, w[(r + 3) & 3]);
      }
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(out, _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(out + 1, _mm_alignr_epi8(dchg, feba, 8));
}

bool cpu_has_sha() {
  unsigned a, b, c, d;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_SSE4_1) == 0 || (c & bit_SSSE3) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & (1u << 29)) != 0;
}
#endif

}  // namespace

bool has_sha_instructions() {
#if defined(__x86_64__)
  static const bool has = cpu_has_sha();
  return has;
#else
  return false;
#endif
}

Sha256::Sha256(bool instructions)
    : compress_(compress_plain),
      state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {
#if defined(__x86_64__)
  if (instructions && has_sha_instructions()) compress_ = compress_sha;
#else
  (void)instructions;
#endif
}

void Sha256::update(std::string_view bytes) {
  if (bytes.empty()) return;  // its address may be null, which copying must not be given
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  std::size_t left = bytes.size();
  const std::size_t held = size_ % 64;
  size_ += left;
  if (held != 0) {
    const std::size_t taken = std::min(left, 64 - held);
    std::memcpy(open_ + held, data, taken);
    if (held + taken < 64) return;
    compress_(state_, open_, 1);
    data += taken;
    left -= taken;
  }
  compress_(state_, data, left / 64);
  if (left % 64 != 0) std::memcpy(open_, data + left / 64 * 64, left % 64);
}

Digest Sha256::digest(std::string_view tail) const {
  std::uint8_t end[128] = {};
  const std::size_t before = size_ % 64, held = before + tail.size(), blocks = held < 56 ? 1 : 2;
  std::memcpy(end, open_, before);
  if (!tail.empty()) std::memcpy(end + before, tail.data(), tail.size());
  end[held] = 0x80;
  const std::uint64_t bits = (size_ + tail.size()) * 8;
  for (int i = 0; i < 8; ++i) end[blocks * 64 - 1 - std::size_t(i)] = std::uint8_t(bits >> (8 * i));
  std::uint32_t state[8];
  std::memcpy(state, state_, sizeof state);
  compress_(state, end, blocks);
  Digest out;
  for (std::size_t i = 0; i < 8; ++i)
    for (std::size_t k = 0; k < 4; ++k) out[4 * i + k] = std::uint8_t(state[i] >> (24 - 8 * k));
  return out;
}

}  // namespace toktier::cache
