// The scans of scan_lanes.h, 64 bytes at a time. The rest of a text that is shorter is copied beside zeros first, so that no
// byte behind the text is read.
#include "scan_lanes.h"

#include <cstring>

#include "byte_vector.h"
#include "engine/faults.h"

namespace toktier {
namespace TOKTIER_LANE_NAMESPACE {
namespace {

// All places of a block, or all but the last.
[[maybe_unused]] constexpr std::uint64_t last_of_block(bool missed) { return ~std::uint64_t{0} >> missed; }

#if TOKTIER_BYTE_VECTOR

constexpr std::uint32_t block = 64;

struct Starts {
  Table16 first_low, first_high, second_low, second_high;
  TOKTIER_INLINE explicit Starts(const StartFilter& f)
      : first_low(f.first_low), first_high(f.first_high), second_low(f.second_low), second_high(f.second_high) {}
  // One byte behind the register is read.
  TOKTIER_INLINE std::uint64_t operator()(const std::uint8_t* p) const { return found(load(p), load(p + 1)); }
  TOKTIER_INLINE std::uint64_t found(Bytes first, Bytes second) const {
    const Bytes low = both(first_low[both(first, fill(15))], second_low[both(second, fill(15))]);
    return nonzero(both(low, both(first_high[high_nibble(first)], second_high[high_nibble(second)])));
  }
};

struct Characters {
  Table64 lead, second, third;
  TOKTIER_INLINE explicit Characters(const CharacterFilter& f) : lead(f.lead), second(f.second), third(f.third) {}
  // Two bytes behind the register are read.
  TOKTIER_INLINE std::uint64_t operator()(const std::uint8_t* p) const { return found(load(p), load(p + 1), load(p + 2)); }
  TOKTIER_INLINE std::uint64_t found(Bytes a, Bytes b, Bytes c) const {
    const std::uint64_t in_tables = nonzero(both(lead[a], both(second[b], third[c])));
    return in_tables & nonzero(less_or_zero(a, fill(0xBF)));  // the tables do not look at the two high bits
  }
};

TOKTIER_INLINE std::uint64_t beyond_ascii(const std::uint8_t* p) {
  return mask64(p, [](const std::uint8_t* q) __attribute__((always_inline)) { return negative(load(q)); });
}

std::uint32_t find_starts(const StartFilter& filter, const std::uint8_t* text, std::uint32_t from, std::uint32_t size,
                          std::uint64_t& places) {
  const Starts starts(filter);
  std::uint32_t i = from;
  for (; size - i > block; i += block)
    if ((places = mask64(text + i, starts) & last_of_block(TOKTIER_FAULT(added_block))) != 0) return i;
  if (i == size) return places = 0, size;
  const std::uint32_t left = size - i;
  const std::uint64_t last = std::uint64_t{1} << (left - 1);
#if TOKTIER_BYTE_VECTOR == 64
  places = starts.found(load_part(text + i, left - 1), load_part(text + i + 1, left - 1));
#else
  places = 0;
  if (left <= 24) {  // a copy would have to be waited for
    for (std::uint32_t k = 0; k + 1 < left; ++k) places |= std::uint64_t{filter.is_first[text[i + k]]} << k;
  } else {
    std::uint8_t rest[block + 1] = {};
    std::memcpy(rest, text + i, left);
    places = mask64(rest, starts);
  }
#endif
  places &= last - 1;
  if (filter.is_first[text[size - 1]] != 0) places |= last;
  return places != 0 ? i : size;
}

std::uint32_t find_characters(const CharacterFilter& filter, const std::uint8_t* text, std::uint32_t from, std::uint32_t size,
                              std::uint64_t& places) {
  std::uint32_t i = from;
  for (; size - i >= 4 * block; i += 4 * block)
    if ((beyond_ascii(text + i) | beyond_ascii(text + i + block) | beyond_ascii(text + i + 2 * block) |
         beyond_ascii(text + i + 3 * block)) != 0)
      break;
  const Characters characters(filter);
  for (; size - i >= block + 2; i += block) {
    if (beyond_ascii(text + i) == 0) continue;
    if ((places = mask64(text + i, characters) & last_of_block(TOKTIER_FAULT(form_block))) != 0) return i;
  }
  std::uint8_t rest[block + 2] = {};
  if (size - i >= block) {  // and one byte at most
    std::memcpy(rest, text + i, size - i);
    if ((places = mask64(rest, characters)) != 0) return i;
    i += block;
  }
  const std::uint32_t left = size - i;
#if TOKTIER_BYTE_VECTOR == 64
  const Bytes first = load_part(text + i, left);
  if (negative(first) == 0) return places = 0, size;
  places = characters.found(first, load_part(text + i + 1, left - 1), load_part(text + i + 2, left < 2 ? 0 : left - 2));
#else
  std::uint32_t ascii = 0;  // a copy would have to be waited for
  while (ascii < left && text[i + ascii] < 0x80) ++ascii;
  if (ascii == left) return places = 0, size;
  std::memset(rest, 0, sizeof rest);
  std::memcpy(rest, text + i, left);
  places = mask64(rest, characters);
#endif
  places &= (std::uint64_t{1} << left) - 1;
  return places != 0 ? i : size;
}

std::uint32_t count_byte(const std::uint8_t* text, std::uint32_t size, std::uint8_t byte) {
  const Bytes wanted = fill(byte);
  const auto match = [&](const std::uint8_t* q) __attribute__((always_inline)) { return equal(load(q), wanted); };
  std::uint32_t i = 0, count = 0;
  for (; size - i >= block; i += block) count += static_cast<std::uint32_t>(__builtin_popcountll(mask64(text + i, match)));
  for (; i < size; ++i) count += text[i] == byte;
  return count;
}

#if TOKTIER_BYTE_VECTOR == 64

// Sixteen bytes in lanes of four, each alone or with what takes its place; then the bytes that count side by side.
std::uint32_t replace_byte(const std::uint8_t* text, std::uint32_t size, std::uint8_t byte, const std::uint8_t* with,
                           std::uint32_t length, std::uint8_t* const out) {
  std::uint32_t put = 0, counts = 0;
  std::memcpy(&put, with, length);
  std::memset(&counts, 1, length);
  const __m512i put_lanes = _mm512_set1_epi32(static_cast<int>(put)), put_counts = _mm512_set1_epi32(static_cast<int>(counts));
  const __m512i one = _mm512_set1_epi32(1);
  const __m128i wanted = _mm_set1_epi8(static_cast<char>(byte));
  std::uint8_t* to = out;
  for (std::uint32_t i = 0; i < size; i += 16) {
    const __mmask16 there = size - i < 16 ? static_cast<__mmask16>((1u << (size - i)) - 1) : static_cast<__mmask16>(0xFFFF);
    const __m128i bytes = _mm_maskz_loadu_epi8(there, text + i);
    const __mmask16 places = _mm_mask_cmpeq_epi8_mask(there, bytes, wanted);
    const __m512i lanes = _mm512_mask_mov_epi32(_mm512_cvtepu8_epi32(bytes), places, put_lanes);
    const __m512i counted = _mm512_mask_mov_epi32(_mm512_maskz_mov_epi32(there, one), places, put_counts);
    const __mmask64 kept = _mm512_test_epi8_mask(counted, counted);
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi8(kept, lanes));
    to += __builtin_popcountll(kept);
  }
  return static_cast<std::uint32_t>(to - out);
}

#else

std::uint32_t replace_byte(const std::uint8_t* text, std::uint32_t size, std::uint8_t byte, const std::uint8_t* with,
                           std::uint32_t length, std::uint8_t* const out) {
  const Bytes wanted = fill(byte);
  const auto match = [&](const std::uint8_t* q) __attribute__((always_inline)) { return equal(load(q), wanted); };
  std::uint32_t put = 0;
  std::memcpy(&put, with, length);
  std::uint8_t* to = out;
  std::uint32_t i = 0;
  // What lies between two matches is written 16 bytes at a time, the end of it over again by what follows.
  for (; size - i >= block + 16; i += block) {
    std::uint64_t places = mask64(text + i, match);
    std::uint32_t kept = 0;
    for (; places != 0; places &= places - 1) {
      const auto at = static_cast<std::uint32_t>(__builtin_ctzll(places));
      for (std::uint32_t k = kept; k < at; k += 16) std::memcpy(to + (k - kept), text + i + k, 16);
      to += at - kept;
      std::memcpy(to, &put, 4);
      to += length;
      kept = at + 1;
    }
    for (std::uint32_t k = kept; k < block; k += 16) std::memcpy(to + (k - kept), text + i + k, 16);
    to += block - kept;
  }
  for (; i < size; ++i) {
    if (text[i] == byte) {
      std::memcpy(to, &put, 4);
      to += length;
    } else {
      *to++ = text[i];
    }
  }
  return static_cast<std::uint32_t>(to - out);
}

#endif

#else

std::uint32_t find_starts(const StartFilter& f, const std::uint8_t* text, std::uint32_t from, std::uint32_t size,
                          std::uint64_t& places) {
  for (std::uint32_t i = from;;) {
    const std::uint8_t* const first = f.is_first;
    while (size - i >= 4 && (first[text[i]] | first[text[i + 1]] | first[text[i + 2]] | first[text[i + 3]]) == 0) i += 4;
    while (i < size && f.is_first[text[i]] == 0) ++i;
    if (i == size) return places = 0, size;
    places = 0;
    for (std::uint32_t k = 0; k < 64 && k < size - i; ++k) {
      const std::uint32_t a = text[i + k], b = i + k + 1 < size ? text[i + k + 1] : 0;
      const bool begins = (f.first_low[a & 15] & f.first_high[a >> 4] & f.second_low[b & 15] & f.second_high[b >> 4]) != 0;
      places |= std::uint64_t{i + k + 1 == size ? first[a] != 0 : begins} << k;
    }
    if (places != 0) return i;
    i += size - i < 64 ? size - i : 64;
  }
}

std::uint32_t find_characters(const CharacterFilter& f, const std::uint8_t* text, std::uint32_t from, std::uint32_t size,
                              std::uint64_t& places) {
  for (std::uint32_t i = from; i < size;) {
    std::uint64_t eight;
    while (size - i >= 8 && (std::memcpy(&eight, text + i, 8), (eight & 0x8080808080808080ull) == 0)) i += 8;
    places = 0;
    for (std::uint32_t k = 0; k < 64 && k < size - i; ++k) {
      if (text[i + k] < 0xC0) continue;
      const std::uint32_t third = i + k + 2 < size ? text[i + k + 2] : 0;
      const bool found = (f.lead[text[i + k] & 63] & f.second[text[i + k + 1] & 63] & f.third[third & 63]) != 0;
      places |= std::uint64_t{found} << k;
    }
    if (places != 0) return i;
    i += size - i < 64 ? size - i : 64;
  }
  return places = 0, size;
}

std::uint32_t count_byte(const std::uint8_t* text, std::uint32_t size, std::uint8_t byte) {
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < size; ++i) count += text[i] == byte;
  return count;
}

std::uint32_t replace_byte(const std::uint8_t* text, std::uint32_t size, std::uint8_t byte, const std::uint8_t* with,
                           std::uint32_t length, std::uint8_t* const out) {
  std::uint8_t* to = out;
  for (std::uint32_t i = 0; i < size; ++i) {
    if (text[i] == byte) {
      std::memcpy(to, with, length);
      to += length;
    } else {
      *to++ = text[i];
    }
  }
  return static_cast<std::uint32_t>(to - out);
}

#endif

}  // namespace
}  // namespace TOKTIER_LANE_NAMESPACE

const ScanLanes TOKTIER_LANE_TABLE(scan_lanes) = {
    TOKTIER_LANE_NAMESPACE::find_starts, TOKTIER_LANE_NAMESPACE::find_characters, TOKTIER_LANE_NAMESPACE::count_byte,
    TOKTIER_LANE_NAMESPACE::replace_byte};

}  // namespace toktier
