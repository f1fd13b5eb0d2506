// Units of a str to UTF-8: many characters are laid out in lanes of four bytes, and the bytes that are none are squeezed out.
// The plain form takes one character at a time and finishes what is too short for a register. How bytes are checked: below
// the writers; the rule behind it is that two neighbouring bytes, looked at by three tables, show every fault but a missing
// third or fourth byte.
#include "transcode_lanes.h"

#include <cstring>

#include "byte_vector.h"
#include "engine/faults.h"

namespace toktier {
namespace TOKTIER_LANE_NAMESPACE {
namespace {

// Length of the ASCII run at the start of `units`, counted in whole words of eight bytes.
template <typename Unit>
TOKTIER_INLINE std::size_t ascii_run(const Unit* units, std::size_t n) {
  constexpr std::size_t step = 8 / sizeof(Unit);
  constexpr std::uint64_t high = sizeof(Unit) == 1   ? 0x8080808080808080ull
                                 : sizeof(Unit) == 2 ? 0xFF80FF80FF80FF80ull
                                                     : 0xFFFFFF80FFFFFF80ull;
  std::size_t i = 0;
  for (; i + step <= n; i += step) {
    std::uint64_t word;
    std::memcpy(&word, units + i, 8);
    if ((word & high) != 0) break;
  }
  return i;
}

// units[i, n), one at a time. Null at a surrogate (`at`).
template <typename Unit>
TOKTIER_INLINE char* write_plain(const Unit* units, std::size_t i, std::size_t n, char* out, std::size_t& at) {
  // What the registers leave over begins with the unit at i.
  if (i != 0 && i < n && units[i] >= 0x80 &&
      (sizeof(Unit) == 1   ? TOKTIER_FAULT(transcode_latin1)
       : sizeof(Unit) == 2 ? TOKTIER_FAULT(transcode_ucs2)
                           : TOKTIER_FAULT(transcode_ucs4)))
    ++i;
  while (i < n) {
    for (const std::size_t end = i + ascii_run(units + i, n - i); i < end; ++i) *out++ = static_cast<char>(units[i]);
    if (i == n) break;
    const std::uint32_t cp = units[i++];
    if (cp < 0x80) {
      *out++ = static_cast<char>(cp);
    } else if (cp < 0x800) {
      *out++ = static_cast<char>(0xC0 | cp >> 6);
      *out++ = static_cast<char>(0x80 | (cp & 0x3F));
    } else if (cp < 0x10000) {
      if (cp >= 0xD800 && cp < 0xE000) return at = i - 1, nullptr;
      *out++ = static_cast<char>(0xE0 | cp >> 12);
      *out++ = static_cast<char>(0x80 | (cp >> 6 & 0x3F));
      *out++ = static_cast<char>(0x80 | (cp & 0x3F));
    } else {
      *out++ = static_cast<char>(0xF0 | cp >> 18);
      *out++ = static_cast<char>(0x80 | (cp >> 12 & 0x3F));
      *out++ = static_cast<char>(0x80 | (cp >> 6 & 0x3F));
      *out++ = static_cast<char>(0x80 | (cp & 0x3F));
    }
  }
  return out;
}

// The first byte of the first malformed sequence of bytes[i, size), where i begins a character; or `size`. RFC 3629.
TOKTIER_INLINE std::size_t malformed_plain(const std::uint8_t* p, std::size_t i, std::size_t size) {
  while (i < size) {
    i += ascii_run(p + i, size - i);
    if (i == size) break;
    const std::uint8_t c = p[i];
    if (c < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
    if (length == 0 || size - i < length) return i;
    for (std::size_t k = 1; k < length; ++k)
      if ((p[i + k] & 0xC0) != 0x80) return i;
    if (c == 0xE0 && p[i + 1] < 0xA0) return i;
    if (c == 0xED && p[i + 1] > 0x9F) return i;
    if (c == 0xF0 && p[i + 1] < 0x90) return i;
    if (c == 0xF4 && p[i + 1] > 0x8F) return i;
    i += length;
  }
  return size;
}

#if TOKTIER_BYTE_VECTOR == 64

constexpr std::size_t lanes_of_four = 16;

// Lane by lane: the UTF-8 of each code point, lead byte first, zero behind it. Then the bytes that count side by side.
TOKTIER_INLINE char* write_lanes(__m512i cp, char* out) {
  // Where the six bits of each byte lie in the lane pair, for characters of two, three and four bytes.
  const __m512i two = _mm512_set1_epi64(0x0000202600000006ll), three = _mm512_set1_epi64(0x0020262C0000060Cll),
                four = _mm512_set1_epi64(0x20262C3200060C12ll);
  const __mmask16 above1 = _mm512_cmpge_epu32_mask(cp, _mm512_set1_epi32(0x80));
  const __mmask16 above2 = _mm512_cmpge_epu32_mask(cp, _mm512_set1_epi32(0x800));
  const __mmask16 above3 = _mm512_cmpge_epu32_mask(cp, _mm512_set1_epi32(0x10000));
  const auto form = [&](__m512i at, std::uint32_t kept, std::uint32_t marks) __attribute__((always_inline)) {
    return _mm512_or_si512(_mm512_and_si512(_mm512_multishift_epi64_epi8(at, cp), _mm512_set1_epi32(static_cast<int>(kept))),
                           _mm512_set1_epi32(static_cast<int>(marks)));
  };
  __m512i bytes = _mm512_mask_mov_epi32(cp, above1, form(two, 0x00003F1F, 0x000080C0));
  bytes = _mm512_mask_mov_epi32(bytes, above2, form(three, 0x003F3F0F, 0x008080E0));
  if (above3 != 0) bytes = _mm512_mask_mov_epi32(bytes, above3, form(four, 0x3F3F3F07, 0x808080F0));
  const __mmask64 kept = _mm512_test_epi8_mask(bytes, bytes) | 0x1111111111111111ull;  // U+0000 is a byte too
  _mm512_storeu_si512(out, _mm512_maskz_compress_epi8(kept, bytes));
  return out + __builtin_popcountll(kept);
}

// The same for 32 units of which each is below U+0800.
TOKTIER_INLINE char* write_short_lanes(__m512i cp, __mmask32 above1, char* out) {
  const __m512i pair = _mm512_or_si512(
      _mm512_or_si512(_mm512_srli_epi16(cp, 6), _mm512_slli_epi16(_mm512_and_si512(cp, _mm512_set1_epi16(0x3F)), 8)),
      _mm512_set1_epi16(static_cast<short>(0x80C0)));
  const __m512i bytes = _mm512_mask_mov_epi16(cp, above1, pair);
  const __mmask64 kept = _mm512_test_epi8_mask(bytes, bytes) | 0x5555555555555555ull;
  _mm512_storeu_si512(out, _mm512_maskz_compress_epi8(kept, bytes));
  return out + __builtin_popcountll(kept);
}

char* from_latin1(const std::uint8_t* units, std::size_t n, char* out) {
  std::size_t i = 0, at = 0;
  for (; n - i >= 32; i += 32) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(units + i));
    const __mmask32 above1 = _mm256_movepi8_mask(bytes);
    if (above1 == 0) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes);
      out += 32;
    } else {
      out = write_short_lanes(_mm512_cvtepu8_epi16(bytes), above1, out);
    }
  }
  return write_plain(units, i, n, out, at);
}

char* from_ucs2(const std::uint16_t* units, std::size_t n, char* out, std::size_t& at) {
  std::size_t i = 0;
  for (; n - i >= 32; i += 32) {
    const __m512i cp = _mm512_loadu_si512(units + i);
    const __mmask32 above1 = _mm512_test_epi16_mask(cp, _mm512_set1_epi16(static_cast<short>(0xFF80)));
    if (above1 == 0) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi16_epi8(cp));
      out += 32;
      continue;
    }
    const __m512i five = _mm512_and_si512(cp, _mm512_set1_epi16(static_cast<short>(0xF800)));
    if (_mm512_test_epi16_mask(five, five) == 0) {
      out = write_short_lanes(cp, above1, out);
      continue;
    }
    const __mmask32 surrogate = _mm512_cmpeq_epi16_mask(five, _mm512_set1_epi16(static_cast<short>(0xD800)));
    if (surrogate != 0) return at = i + static_cast<std::size_t>(__builtin_ctz(surrogate)), nullptr;
    out = write_lanes(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(cp)), out);
    out = write_lanes(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(cp, 1)), out);
  }
  return write_plain(units, i, n, out, at);
}

char* from_ucs4(const std::uint32_t* units, std::size_t n, char* out, std::size_t& at) {
  std::size_t i = 0;
  for (; n - i >= lanes_of_four; i += lanes_of_four) {
    const __m512i cp = _mm512_loadu_si512(units + i);
    if (_mm512_cmpge_epu32_mask(cp, _mm512_set1_epi32(0x80)) == 0) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(cp));
      out += lanes_of_four;
      continue;
    }
    const __m512i five = _mm512_and_si512(cp, _mm512_set1_epi32(static_cast<int>(0xFFFFF800u)));
    const __mmask16 surrogate = _mm512_cmpeq_epi32_mask(five, _mm512_set1_epi32(0xD800));
    if (surrogate != 0) return at = i + static_cast<std::size_t>(__builtin_ctz(surrogate)), nullptr;
    out = write_lanes(cp, out);
  }
  return write_plain(units, i, n, out, at);
}

#elif TOKTIER_BYTE_VECTOR && !defined(TOKTIER_BYTE_NEON)

// For four lanes whose characters have lengths given by two bits each: where the bytes that count lie, and how many they are.
struct Squeeze {
  alignas(16) std::uint8_t from[256][16];
  std::uint8_t size[256];
  constexpr Squeeze() : from{}, size{} {
    for (unsigned key = 0; key < 256; ++key) {
      unsigned to = 0;
      for (unsigned lane = 0; lane < 4; ++lane) {
        const unsigned length = 1 + (key >> lane & 1) + (key >> (lane + 4) & 1) * 2;
        for (unsigned k = 0; k < length; ++k) from[key][to++] = static_cast<std::uint8_t>(lane * 4 + k);
      }
      size[key] = static_cast<std::uint8_t>(to);
      while (to < 16) from[key][to++] = 0x80;
    }
  }
};
constexpr Squeeze squeeze{};

// The same for eight lanes of two bytes: a bit each, set where the character has two.
struct ShortSqueeze {
  alignas(16) std::uint8_t from[256][16];
  constexpr ShortSqueeze() : from{} {
    for (unsigned key = 0; key < 256; ++key) {
      unsigned to = 0;
      for (unsigned lane = 0; lane < 8; ++lane)
        for (unsigned k = 0; k < 1 + (key >> lane & 1); ++k) from[key][to++] = static_cast<std::uint8_t>(lane * 2 + k);
      while (to < 16) from[key][to++] = 0x80;
    }
  }
};
constexpr ShortSqueeze short_squeeze{};

// Eight units below U+0800; `ascii`: all ones in the lanes below U+0080.
TOKTIER_INLINE char* write_short_lanes(__m128i cp, __m128i ascii, char* out) {
  const __m128i last = _mm_and_si128(cp, _mm_set1_epi16(0x3F));
  const __m128i pair = _mm_or_si128(_mm_or_si128(_mm_srli_epi16(cp, 6), _mm_slli_epi16(last, 8)),
                                    _mm_set1_epi16(static_cast<short>(0x80C0)));
  const __m128i bytes = _mm_or_si128(_mm_and_si128(ascii, cp), _mm_andnot_si128(ascii, pair));
  const unsigned key = ~static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi16(ascii, ascii))) & 0xFF;
  const __m128i from = _mm_load_si128(reinterpret_cast<const __m128i*>(short_squeeze.from[key]));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_shuffle_epi8(bytes, from));
  return out + 8 + __builtin_popcount(key);
}

// Code points are below 0x110000, so that signed comparisons do.
TOKTIER_INLINE char* write_lanes(__m128i cp, char* out) {
  const __m128i above1 = _mm_cmpgt_epi32(cp, _mm_set1_epi32(0x7F)), above2 = _mm_cmpgt_epi32(cp, _mm_set1_epi32(0x7FF)),
                above3 = _mm_cmpgt_epi32(cp, _mm_set1_epi32(0xFFFF));
  const __m128i six = _mm_set1_epi32(0x3F);
  const __m128i last = _mm_and_si128(cp, six), third = _mm_and_si128(_mm_srli_epi32(cp, 6), six),
                second = _mm_and_si128(_mm_srli_epi32(cp, 12), six);
  const __m128i two = _mm_or_si128(_mm_or_si128(_mm_srli_epi32(cp, 6), _mm_slli_epi32(last, 8)), _mm_set1_epi32(0x80C0));
  const __m128i three = _mm_or_si128(
      _mm_or_si128(_mm_srli_epi32(cp, 12), _mm_slli_epi32(third, 8)),
      _mm_or_si128(_mm_slli_epi32(last, 16), _mm_set1_epi32(0x8080E0)));
  __m128i bytes = _mm_or_si128(_mm_andnot_si128(above1, cp), _mm_and_si128(above1, two));
  bytes = _mm_or_si128(_mm_andnot_si128(above2, bytes), _mm_and_si128(above2, three));
  int low = _mm_movemask_ps(_mm_castsi128_ps(_mm_xor_si128(above1, above2)));
  const int high = _mm_movemask_ps(_mm_castsi128_ps(above2)), longest = _mm_movemask_ps(_mm_castsi128_ps(above3));
  if (longest != 0) {
    const __m128i upper = _mm_or_si128(_mm_srli_epi32(cp, 18), _mm_slli_epi32(second, 8));
    const __m128i lower = _mm_or_si128(_mm_slli_epi32(third, 16), _mm_slli_epi32(last, 24));
    const __m128i four = _mm_or_si128(_mm_or_si128(upper, lower), _mm_set1_epi32(static_cast<int>(0x808080F0u)));
    bytes = _mm_or_si128(_mm_andnot_si128(above3, bytes), _mm_and_si128(above3, four));
    low |= longest;
  }
  const int key = low | high << 4;
  const __m128i from = _mm_load_si128(reinterpret_cast<const __m128i*>(squeeze.from[key]));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_shuffle_epi8(bytes, from));
  return out + squeeze.size[key];
}

char* from_latin1(const std::uint8_t* units, std::size_t n, char* out) {
  const __m128i zero = _mm_setzero_si128();
  std::size_t i = 0, at = 0;
  for (; n - i >= 16; i += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(units + i));
    if (_mm_movemask_epi8(bytes) == 0) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
      out += 16;
      continue;
    }
    const __m128i limit = _mm_set1_epi16(0x80);
    const __m128i low = _mm_unpacklo_epi8(bytes, zero), high = _mm_unpackhi_epi8(bytes, zero);
    out = write_short_lanes(low, _mm_cmplt_epi16(low, limit), out);
    out = write_short_lanes(high, _mm_cmplt_epi16(high, limit), out);
  }
  return write_plain(units, i, n, out, at);
}

char* from_ucs2(const std::uint16_t* units, std::size_t n, char* out, std::size_t& at) {
  const __m128i zero = _mm_setzero_si128();
  std::size_t i = 0;
  for (; n - i >= 8; i += 8) {
    const __m128i cp = _mm_loadu_si128(reinterpret_cast<const __m128i*>(units + i));
    const __m128i ascii = _mm_cmpeq_epi16(_mm_and_si128(cp, _mm_set1_epi16(static_cast<short>(0xFF80))), zero);
    if (_mm_movemask_epi8(ascii) == 0xFFFF) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm_packus_epi16(cp, cp));
      out += 8;
      continue;
    }
    const __m128i five = _mm_and_si128(cp, _mm_set1_epi16(static_cast<short>(0xF800)));
    if (_mm_movemask_epi8(_mm_cmpeq_epi16(five, zero)) == 0xFFFF) {
      out = write_short_lanes(cp, ascii, out);
      continue;
    }
    const int surrogate = _mm_movemask_epi8(_mm_cmpeq_epi16(five, _mm_set1_epi16(static_cast<short>(0xD800))));
    if (surrogate != 0) return at = i + static_cast<std::size_t>(__builtin_ctz(static_cast<unsigned>(surrogate))) / 2, nullptr;
    out = write_lanes(_mm_unpacklo_epi16(cp, zero), out);
    out = write_lanes(_mm_unpackhi_epi16(cp, zero), out);
  }
  return write_plain(units, i, n, out, at);
}

char* from_ucs4(const std::uint32_t* units, std::size_t n, char* out, std::size_t& at) {
  std::size_t i = 0;
  for (; n - i >= 4; i += 4) {
    const __m128i cp = _mm_loadu_si128(reinterpret_cast<const __m128i*>(units + i));
    const __m128i above1 = _mm_and_si128(cp, _mm_set1_epi32(static_cast<int>(0xFFFFFF80u)));
    if (_mm_movemask_epi8(_mm_cmpeq_epi32(above1, _mm_setzero_si128())) == 0xFFFF) {
      const int four = _mm_cvtsi128_si32(_mm_shuffle_epi8(cp, _mm_set1_epi32(0x0C080400)));
      std::memcpy(out, &four, 4);
      out += 4;
      continue;
    }
    const __m128i five = _mm_and_si128(cp, _mm_set1_epi32(static_cast<int>(0xFFFFF800u)));
    const int surrogate = _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(five, _mm_set1_epi32(0xD800))));
    if (surrogate != 0) return at = i + static_cast<std::size_t>(__builtin_ctz(static_cast<unsigned>(surrogate))), nullptr;
    out = write_lanes(cp, out);
  }
  return write_plain(units, i, n, out, at);
}

#else

char* from_latin1(const std::uint8_t* units, std::size_t n, char* out) {
  std::size_t at = 0;
  return write_plain(units, 0, n, out, at);
}
char* from_ucs2(const std::uint16_t* units, std::size_t n, char* out, std::size_t& at) {
  return write_plain(units, 0, n, out, at);
}
char* from_ucs4(const std::uint32_t* units, std::size_t n, char* out, std::size_t& at) {
  return write_plain(units, 0, n, out, at);
}

#endif

#if TOKTIER_BYTE_VECTOR

// What two neighbouring bytes show, by the halves of the first and the upper half of the second: a fault is one that all three
// tables name. `pair` is no fault by itself: two continuations belong only behind a lead of three or four bytes.
enum : std::uint8_t {
  too_short = 1,     // a lead, then no continuation
  too_long = 2,      // ASCII, then a continuation
  overlong3 = 4,     // E0, then below A0
  beyond = 8,        // F4 and above, then 90 and above
  surrogate = 16,    // ED, then A0 and above
  overlong2 = 32,    // C0 or C1, then a continuation
  overlong4 = 64,    // F0, then below 90; or F5 and above, then below 90
  pair = 128,        // two continuations
};
alignas(16) constexpr std::uint8_t first_high[16] = {
    too_long, too_long, too_long, too_long, too_long, too_long, too_long, too_long, pair, pair, pair, pair,
    too_short | overlong2, too_short, too_short | overlong3 | surrogate, too_short | beyond | overlong4};
constexpr std::uint8_t always = too_short | too_long | pair;
alignas(16) constexpr std::uint8_t first_low[16] = {
    always | overlong3 | overlong2 | overlong4, always | overlong2, always, always, always | beyond,
    always | beyond | overlong4, always | beyond | overlong4, always | beyond | overlong4, always | beyond | overlong4,
    always | beyond | overlong4, always | beyond | overlong4, always | beyond | overlong4, always | beyond | overlong4,
    always | beyond | overlong4 | surrogate, always | beyond | overlong4, always | beyond | overlong4};
constexpr std::uint8_t continuation = too_long | overlong2 | pair;
alignas(16) constexpr std::uint8_t second_high[16] = {
    too_short, too_short, too_short, too_short, too_short, too_short, too_short, too_short,
    continuation | overlong3 | overlong4, continuation | overlong3 | beyond, continuation | surrogate | beyond,
    continuation | surrogate | beyond, too_short, too_short, too_short, too_short};

struct FaultTables {
  Table16 first_high_{first_high}, first_low_{first_low}, second_high_{second_high};

  // Faults of the register at p; the three bytes before p are read.
  TOKTIER_INLINE std::uint64_t operator()(const std::uint8_t* p) const {
    const Bytes second = load(p), first = load(p - 1);
    const Bytes of_first = both(first_high_[high_nibble(first)], first_low_[both(first, fill(15))]);
    const Bytes shown = both(of_first, second_high_[high_nibble(second)]);
    // 0x80 where the byte is the third of three or more, or the fourth of four: there, and only there, two continuations meet.
    const Bytes third = less_or_zero(load(p - 2), fill(0xE0 - 0x80)), fourth = less_or_zero(load(p - 3), fill(0xF0 - 0x80));
    const Bytes wanted = both(either(third, fourth), fill(0x80));
    return nonzero(differ(shown, wanted));
  }
};

// malformed_plain where i may lie inside of a character; what is before it is well-formed as far as it goes.
TOKTIER_INLINE std::size_t malformed_from(const std::uint8_t* p, std::size_t i, std::size_t size) {
  for (std::size_t back = 1; back <= 3 && back <= i; ++back) {
    if (p[i - back] < 0x80) break;
    if (p[i - back] >= 0xC0) {
      i -= back;
      break;
    }
  }
  return malformed_plain(p, i, size);
}

std::size_t first_malformed(const std::uint8_t* p, std::size_t size) {
  if (size < 64) return malformed_plain(p, 0, size);
  const FaultTables faults;
  const auto high = [](const std::uint8_t* q) __attribute__((always_inline)) { return negative(load(q)); };
  std::uint8_t start[64 + 3] = {};  // nothing stands before the first byte: as if ASCII did
  std::memcpy(start + 3, p, 64);
  if (mask64(start + 3, faults) != 0) return malformed_plain(p, 0, size);
  std::size_t i = 64;
  for (; size - i >= 64; i += 64) {
    if (mask64(p + i, high) == 0) {
      if (TOKTIER_FAULT(malformed_block)) continue;
      if (p[i - 1] >= 0xC0 || p[i - 2] >= 0xE0 || p[i - 3] >= 0xF0) return malformed_from(p, i, size);
      continue;
    }
    if (mask64(p + i, faults) != 0) return malformed_from(p, i, size);
  }
  return malformed_from(p, i, size);
}

#else

std::size_t first_malformed(const std::uint8_t* p, std::size_t size) { return malformed_plain(p, 0, size); }

#endif

}  // namespace
}  // namespace TOKTIER_LANE_NAMESPACE

const TranscodeLanes TOKTIER_LANE_TABLE(transcode_lanes) = {
    TOKTIER_LANE_NAMESPACE::from_latin1, TOKTIER_LANE_NAMESPACE::from_ucs2, TOKTIER_LANE_NAMESPACE::from_ucs4,
    TOKTIER_LANE_NAMESPACE::first_malformed};

}  // namespace toktier
