// The steps of split_lanes.h: on registers of 64 bytes that may be permuted and compressed, on those of byte_vector.h with tables
// of sixteen, and scalar.
#include "split_lanes.h"

#include "byte_vector.h"
#include "engine/faults.h"
#include "shared/trie.h"
#include "shared/utf8.h"

#ifdef __BMI2__
#include <immintrin.h>
#endif

namespace toktier {
namespace TOKTIER_LANE_NAMESPACE {
namespace {

using u8 = std::uint8_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

inline u64 low_bits(u32 n) { return n >= 64 ? ~u64{0} : (u64{1} << n) - 1; }

// Class of the character at p, which is no ASCII character and not of one class with all that share its first byte.
inline u8 class_at(const SplitTables& t, const u8* p) {
  tt_u32 length;
  return tt_trie(t.class1, t.class2, tt_utf8_next(p, length));
}

// One block of at most 64 bytes, a character at a time.
inline u32 classify_scalar(const SplitTables& t, const u8* text, u32 n, u8* classes, u64& lead) {
  u32 count = 0;
  u64 bits = 0;
  for (u32 i = 0; i < n; ++i) {
    const u8 byte = text[i];
    if (byte < 0x80) {
      const bool faulty = TOKTIER_FAULT(level_baseline) && TOKTIER_LANE_IS_BASELINE && byte == '-';
      classes[count++] = t.ascii[faulty ? 'a' : byte];
    } else if (tt_is_continuation(byte)) {
      continue;
    } else {
      const u8 cls = t.lead[byte & 0x7F];
      const bool faulty = TOKTIER_FAULT(split_straddle) && i == 63;
      classes[count++] = faulty ? t.ascii['!'] : cls != SplitTables::mixed ? cls : class_at(t, text + i);
    }
    bits |= u64{1} << i;
  }
  lead = bits;
  return count;
}

inline u32 decide_scalar(const SplitTables& t, const u8* stream, u32 n, u64& start, u64& dropped, u64& undecided) {
  u64 s = 0, d = 0, u = 0;
  for (u32 i = 0; i < n; ++i) {
    const u8* const c = stream + i;
    const u64 word = t.words[0][c[0]] & t.words[1][c[1]] & t.words[2][c[2]] & t.words[3][c[3]] & t.words[4][c[4]];
    s |= u64{(word & 0xFFFFFFFF) != 0} << i;
    d |= u64{(word >> 32 & 0xFF) != 0} << i;
    u |= u64{word >> 40 != 0} << i;
  }
  if (TOKTIER_FAULT(split_undecided) && n == 64) u &= ~u64{0} >> 1;
  start = s & ~u;
  dropped = d & ~u;
  undecided = u;
  return (u != 0) | (dropped != 0 ? 2 : 0);
}

#if defined(__AVX512VBMI2__)

// The 64 characters that share all bytes but the last stand side by side in the trie.
inline __m512i page(const SplitTables& t, u32 first) {
  return load(t.class2 + (static_cast<u32>(t.class1[first >> TT_TRIE_SHIFT]) << TT_TRIE_SHIFT) + (first & 64));
}

// Classes of the characters of a block with first bytes that tell too little: each first byte (and second byte, of three) that is
// there is looked up once, for all its characters.
inline __m512i classify_mixed(const SplitTables& t, const u8* p, u32 room, __m512i x, __m512i cls, u64 mixed) {
  const __m512i x1 = _mm512_maskz_loadu_epi8(low_bits(room - 1), p + 1);
  while (mixed != 0) {
    const u32 at = static_cast<u32>(__builtin_ctzll(mixed));
    const u32 first = p[at];
    const u64 same = mixed & _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8(static_cast<char>(first)));
    mixed &= ~same;
    if (first < 0xE0) {
      cls = _mm512_mask_permutexvar_epi8(cls, same, x1, page(t, (first & 0x1F) << 6));
      continue;
    }
    cls = _mm512_mask_permutexvar_epi8(cls, same, x1, load(t.second[first & 0x1F]));
    u64 rest = same & static_cast<u64>(_mm512_movepi8_mask(cls));
    if (rest == 0) continue;
    if (first < 0xF0) {
      const __m512i x2 = _mm512_maskz_loadu_epi8(room >= 2 ? low_bits(room - 2) : 0, p + 2);
      do {
        const u32 second = p[__builtin_ctzll(rest) + 1];
        const u64 pair = rest & _mm512_cmpeq_epi8_mask(x1, _mm512_set1_epi8(static_cast<char>(second)));
        rest &= ~pair;
        cls = _mm512_mask_permutexvar_epi8(cls, pair, x2, page(t, (first & 0xF) << 12 | (second & 0x3F) << 6));
      } while (rest != 0);
    } else {
      alignas(64) u8 bytes[64];
      _mm512_store_si512(bytes, cls);
      for (u64 bits = rest; bits != 0; bits &= bits - 1) bytes[__builtin_ctzll(bits)] = class_at(t, p + __builtin_ctzll(bits));
      cls = _mm512_load_si512(bytes);
    }
  }
  return cls;
}

u32 classify(const SplitTables& t, const u8* text, u32 begin, u32 end, u32 size, u8* classes, u64* lead, bool& ascii) {
  const __m512i ascii0 = load(t.ascii), ascii1 = load(t.ascii + 64), lead0 = load(t.lead), lead1 = load(t.lead + 64);
  u32 count = 0;
  u64 other = 0;
  for (u32 at = begin; at < end; at += 64) {
    const u32 n = end - at < 64 ? end - at : 64;
    const u64 all = low_bits(n);
    const __m512i x = n == 64 ? load(text + at) : _mm512_maskz_loadu_epi8(all, text + at);
    const u64 high = static_cast<u64>(_mm512_movepi8_mask(x));
    __m512i cls = _mm512_permutex2var_epi8(ascii0, x, ascii1);
    if (high == 0) {
      _mm512_storeu_si512(classes + count, cls);
      *lead++ = all;
      count += n;
      continue;
    }
    other = 1;
    const u64 begins = all & ~static_cast<u64>(_mm512_cmplt_epi8_mask(x, _mm512_set1_epi8(-64)));
    cls = _mm512_mask_mov_epi8(cls, high, _mm512_permutex2var_epi8(lead0, x, lead1));
    const u64 mixed = begins & static_cast<u64>(_mm512_movepi8_mask(cls));
    if (mixed != 0) cls = classify_mixed(t, text + at, size - at, x, cls, mixed);
    if (TOKTIER_FAULT(split_straddle)) cls = _mm512_mask_set1_epi8(cls, high & u64{1} << 63, static_cast<char>(t.ascii['!']));
    _mm512_storeu_si512(classes + count, _mm512_maskz_compress_epi8(begins, cls));
    *lead++ = begins;
    count += static_cast<u32>(__builtin_popcountll(begins));
  }
  ascii = other == 0;
  return count;
}

inline u64 holds(const SplitTables& t, u32 set, const __m512i* c) {
  const u8(*const table)[64] = t.terms[set];
  const __m512i a = _mm512_permutexvar_epi8(c[0], load(table[0])), b = _mm512_permutexvar_epi8(c[1], load(table[1]));
  const __m512i d = _mm512_permutexvar_epi8(c[3], load(table[3])), e = _mm512_permutexvar_epi8(c[4], load(table[4]));
  const __m512i abc = _mm512_ternarylogic_epi64(a, b, _mm512_permutexvar_epi8(c[2], load(table[2])), 0x80);
  return _mm512_test_epi8_mask(_mm512_and_si512(abc, d), e);
}

u32 decide(const SplitTables& t, const u8* stream, u32 count, u64* start, u64* dropped, u64* undecided) {
  u64 open = 0, drop = 0;
  const u32 start_sets = t.start_sets, undecided_sets = SplitTables::undecided + t.undecided_sets;
  for (u32 i = 0; i < count; i += 64) {
    const u8* const p = stream + i;
    const __m512i c[5] = {load(p), load(p + 1), load(p + 2), load(p + 3), load(p + 4)};
    const u64 all = low_bits(count - i);
    u64 u = 0, s = 0;
    for (u32 set = SplitTables::undecided; set < undecided_sets; ++set) u |= holds(t, set, c);
    for (u32 set = SplitTables::starts; set < start_sets; ++set) s |= holds(t, set, c);
    u &= TOKTIER_FAULT(split_undecided) ? all >> 1 : all;
    const u64 d = t.any_drops ? all & ~u & holds(t, SplitTables::drops, c) : 0;
    start[i / 64] = s & all & ~u;
    dropped[i / 64] = d;
    undecided[i / 64] = u;
    open |= u;
    drop |= d;
  }
  return (open != 0) | (drop != 0 ? 2 : 0);
}

#else

#if TOKTIER_BYTE_VECTOR

// Of 64 ASCII bytes.
inline void classify_ascii(const SplitTables& t, const u8* text, u8* classes) {
  const Table64 low(t.ascii), high(t.ascii + 64);
  for (u32 i = 0; i < 64; i += vector_size) {
    const Bytes x = load(text + i);
    Bytes cls = choose(low[x], high[x], more_or_all(x, fill(0x40)));
    if (TOKTIER_FAULT(level_vector)) cls = choose(cls, fill(0), more_or_all(x, fill(0x10)));
    store(classes + i, cls);
  }
}

inline bool is_ascii(const u8* text) { return mask64(text, [](const u8* p) { return negative(load(p)); }) == 0; }

inline Bytes look_up(const u8* table, Bytes c, Bytes upper, bool two) {
  const Bytes low = Table16(table)[c];
  return two ? choose(low, Table16(table + 16)[c], upper) : low;
}

inline u64 holds(const SplitTables& t, u32 set, const Bytes* c, const Bytes* upper, bool two) {
  Bytes v = look_up(t.terms[set][0], c[0], upper[0], two);
  for (u32 p = 1; p < 5; ++p) v = both(v, look_up(t.terms[set][p], c[p], upper[p], two));
  return nonzero(v);
}

inline u32 decide_block(const SplitTables& t, const u8* stream, u32 n, u64& start, u64& dropped, u64& undecided) {
  const bool two = t.n_class >= 16;
  u64 s = 0, d = 0, u = 0;
  for (u32 i = 0; i < n; i += vector_size) {
    // A shuffle of sixteen takes the low four bits of a class; the fifth one says which of two.
    Bytes c[5], upper[5];
    for (u32 p = 0; p < 5; ++p) {
      const Bytes classes = load(stream + i + p);
      upper[p] = bit4_on_top(classes);
      c[p] = both(classes, fill(15));
    }
    for (u32 set = SplitTables::undecided; set < SplitTables::undecided + t.undecided_sets; ++set)
      u |= holds(t, set, c, upper, two) << i;
    for (u32 set = SplitTables::starts; set < t.start_sets; ++set) s |= holds(t, set, c, upper, two) << i;
    if (t.any_drops) d |= holds(t, SplitTables::drops, c, upper, two) << i;
  }
  const u64 all = low_bits(n);
  undecided = u &= TOKTIER_FAULT(split_undecided) ? all >> 1 : all;
  start = s & all & ~u;
  dropped = d & all & ~u;
  return (u != 0) | (dropped != 0 ? 2 : 0);
}

#endif

u32 classify(const SplitTables& t, const u8* text, u32 begin, u32 end, u32, u8* classes, u64* lead, bool& ascii) {
  u32 count = 0;
  bool only = true;
  for (u32 at = begin; at < end; at += 64) {
    const u32 n = end - at < 64 ? end - at : 64;
#if TOKTIER_BYTE_VECTOR
    if (n == 64 && is_ascii(text + at)) {
      classify_ascii(t, text + at, classes + count);
      *lead++ = ~u64{0};
      count += 64;
      continue;
    }
#endif
    const u32 found = classify_scalar(t, text + at, n, classes + count, *lead++);
    count += found;
    only = only && found == n;
  }
  ascii = only;
  return count;
}

u32 decide(const SplitTables& t, const u8* stream, u32 count, u64* start, u64* dropped, u64* undecided) {
  u32 facts = 0;
  for (u32 i = 0; i < count; i += 64) {
    const u32 n = count - i < 64 ? count - i : 64;
#if TOKTIER_BYTE_VECTOR
    if (t.n_class < 32) {
      facts |= decide_block(t, stream + i, n, start[i / 64], dropped[i / 64], undecided[i / 64]);
      continue;
    }
#endif
    facts |= decide_scalar(t, stream + i, n, start[i / 64], dropped[i / 64], undecided[i / 64]);
  }
  return facts;
}

#endif

inline u64 deposit(u64 bits, u64 mask) {
#if defined(__BMI2__)
  return _pdep_u64(bits, mask);
#else
  if (mask == ~u64{0}) return bits;
  u64 out = 0;
  for (; mask != 0 && bits != 0; mask &= mask - 1, bits >>= 1)
    if (bits & 1) out |= mask & (~mask + 1);
  return out;
#endif
}

void spread(const u64* bits, const u64* lead, u32 words, u64* out) {
  u32 at = 0;
  for (u32 w = 0; w < words; ++w) {
    const u32 k = at % 64;
    const u64 low = bits[at / 64] >> k;
    out[w] = deposit(k == 0 || TOKTIER_FAULT(split_spread) ? low : low | bits[at / 64 + 1] << (64 - k), lead[w]);
    at += static_cast<u32>(__builtin_popcountll(lead[w]));
  }
}

#if defined(__AVX512VBMI2__)
inline void store_numbers(u32* out, __m512i from, __m128i k) {
  _mm512_storeu_si512(out, _mm512_add_epi32(from, _mm512_cvtepu8_epi32(k)));
}
#endif

u32 list(const u64* words, u32 count, u32 base, u32* out) {
  u32 n = 0;
#if defined(__AVX512VBMI2__)
  alignas(64) static constexpr u8 order[64] = {
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
      16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
      32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
      48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63,
  };
  const __m512i numbers = load(order);
  for (u32 w = 0; w < count; ++w) {
    const u64 bits = words[w];
    const u32 found = static_cast<u32>(__builtin_popcountll(bits));
    const __m512i packed = _mm512_maskz_compress_epi8(bits, numbers), from = _mm512_set1_epi32(static_cast<int>(base + w * 64));
    store_numbers(out + n, from, _mm512_castsi512_si128(packed));
    if (found > 16) {
      store_numbers(out + n + 16, from, _mm512_extracti32x4_epi32(packed, 1));
      if (found > 32) {
        store_numbers(out + n + 32, from, _mm512_extracti32x4_epi32(packed, 2));
        store_numbers(out + n + 48, from, _mm512_extracti32x4_epi32(packed, 3));
      }
    }
    n += found;
  }
#else
  for (u32 w = 0; w < count; ++w)
    for (u64 bits = words[w]; bits != 0; bits &= bits - 1)
      out[n++] = base + w * 64 + static_cast<u32>(__builtin_ctzll(bits));
#endif
  return n;
}

}  // namespace
}  // namespace TOKTIER_LANE_NAMESPACE

const SplitLanes TOKTIER_LANE_TABLE(split_lanes) = {TOKTIER_LANE_NAMESPACE::classify, TOKTIER_LANE_NAMESPACE::decide,
                                                    TOKTIER_LANE_NAMESPACE::spread, TOKTIER_LANE_NAMESPACE::list};

}  // namespace toktier
