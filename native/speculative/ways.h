// The sixteen slots of a set looked at together, for the one thread that writes them: bit i of a result is of slot i. Where the
// processor is x86-64, four slots at a time; the loops say the same.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace toktier::speculative {

inline constexpr std::size_t kWays = 16;

#ifdef __SSE2__
template <typename Test>
std::uint32_t ways_where(const std::uint32_t* set, Test test) {
  const auto four = [&](int i) { return test(_mm_loadu_si128(reinterpret_cast<const __m128i*>(set) + i)); };
  const __m128i low = _mm_packs_epi32(four(0), four(1)), high = _mm_packs_epi32(four(2), four(3));
  return std::uint32_t(_mm_movemask_epi8(_mm_packs_epi16(low, high)));
}
#endif

// Slots with the bits of `tag` outside of `mask`.
inline std::uint32_t ways_with(const std::uint32_t* set, std::uint32_t tag, std::uint32_t mask) {
#ifdef __SSE2__
  const __m128i wanted = _mm_set1_epi32(int(tag)), ignored = _mm_set1_epi32(int(mask));
  return ways_where(set, [&](__m128i slots) {
    return _mm_cmpeq_epi32(_mm_or_si128(slots, ignored), _mm_or_si128(wanted, ignored));
  });
#else
  std::uint32_t found = 0;
  for (std::size_t way = 0; way < kWays; ++way) found |= std::uint32_t((set[way] | mask) == (tag | mask)) << way;
  return found;
#endif
}

// Slots that are 0, and those with `least` or more between them and `from`, counted within `mask`; both are below 2**31.
inline std::uint32_t ways_behind(const std::uint32_t* set, std::uint32_t from, std::uint32_t mask, std::uint32_t least) {
#ifdef __SSE2__
  const __m128i start = _mm_set1_epi32(int(from)), within = _mm_set1_epi32(int(mask)), before = _mm_set1_epi32(int(least) - 1);
  return ways_where(set, [&](__m128i slots) {
    const __m128i distance = _mm_and_si128(_mm_sub_epi32(start, slots), within);
    return _mm_or_si128(_mm_cmpeq_epi32(slots, _mm_setzero_si128()), _mm_cmpgt_epi32(distance, before));
  });
#else
  std::uint32_t found = 0;
  for (std::size_t way = 0; way < kWays; ++way)
    found |= std::uint32_t(set[way] == 0 || ((from - set[way]) & mask) >= least) << way;
  return found;
#endif
}

// The greatest such distance.
inline std::uint32_t most_behind(const std::uint32_t* set, std::uint32_t from, std::uint32_t mask) {
#ifdef __SSE2__
  const __m128i start = _mm_set1_epi32(int(from)), within = _mm_set1_epi32(int(mask));
  const auto greater = [](__m128i a, __m128i b) {
    const __m128i of_a = _mm_cmpgt_epi32(a, b);
    return _mm_or_si128(_mm_and_si128(of_a, a), _mm_andnot_si128(of_a, b));
  };
  const auto four = [&](int i) {
    return _mm_and_si128(_mm_sub_epi32(start, _mm_loadu_si128(reinterpret_cast<const __m128i*>(set) + i)), within);
  };
  __m128i most = greater(greater(four(0), four(1)), greater(four(2), four(3)));
  most = greater(most, _mm_shuffle_epi32(most, 0b01001110));
  most = greater(most, _mm_shuffle_epi32(most, 0b10110001));
  return std::uint32_t(_mm_cvtsi128_si32(most));
#else
  std::uint32_t most = 0;
  for (std::size_t way = 0; way < kWays; ++way) most = std::max(most, (from - set[way]) & mask);
  return most;
#endif
}

}  // namespace toktier::speculative
