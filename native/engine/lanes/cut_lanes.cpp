// Candidates come from bit algebra over 64 bytes; characters beside them are decoded and looked up, 16 at a time where the CPU
// permutes bytes and gathers words.
#include "cut_lanes.h"

#include <cstring>

#include "byte_vector.h"
#include "engine/faults.h"

namespace toktier {
namespace TOKTIER_LANE_NAMESPACE {
namespace {

// Bit k: byte k of up to 64 is not ASCII; begins a character of three bytes or more.
struct Bytes64 {
  std::uint64_t wide, from3;
};

TOKTIER_INLINE Bytes64 look_at(const std::uint8_t* text, std::uint32_t count) {
#if TOKTIER_BYTE_VECTOR == 64
  const Bytes bytes = count == 64 ? load(text) : load_part(text, count);
  return {negative(bytes), nonzero(less_or_zero(bytes, fill(0xDF)))};
#else
#if TOKTIER_BYTE_VECTOR
  const auto wide = [](const std::uint8_t* p) __attribute__((always_inline)) { return negative(load(p)); };
  const auto from3 = [](const std::uint8_t* p)
                         __attribute__((always_inline)) { return nonzero(less_or_zero(load(p), fill(0xDF))); };
  if (count == 64) return {mask64(text, wide), mask64(text, from3)};
#endif
  Bytes64 bits{0, 0};
  for (std::uint32_t k = 0; k < count; k += 8) {
    std::uint64_t bytes = 0;
    if (count - k >= 8)
      std::memcpy(&bytes, text + k, 8);
    else
      for (std::uint32_t i = 0; i < count - k; ++i) bytes |= std::uint64_t{text[k + i]} << (i * 8);
    const auto top_bits = [](std::uint64_t v) { return (v & 0x8080808080808080) * 0x0002040810204081 >> 56; };  // side by side
    bits.wide |= top_bits(bytes) << k;
    bits.from3 |= top_bits(bytes & bytes << 1 & bytes << 2) << k;
  }
  return bits;
#endif
}

// At the baseline level words of every length are cut, so that each pair of characters that the filter knows comes to be tried
// where the levels are compared with the reference.
constexpr bool cuts_all = TOKTIER_LANE_IS_BASELINE;

// Bits of the pieces of more than 31 bytes, without the first of each. `start` and `next`: where pieces begin in this word and in
// the next one. `inside`: the word before ends in such a piece; then whether this one does.
TOKTIER_INLINE std::uint64_t in_long_pieces(std::uint64_t start, std::uint64_t next, std::uint64_t& inside) {
  const auto down = [](std::uint64_t low, std::uint64_t high, std::uint32_t by) { return low >> by | high << (64 - by); };
  std::uint64_t near = down(start, next, 1), far = next >> 1;  // a piece begins within 1, 2, 4, 8, 16, 31 bytes behind
  for (const std::uint32_t by : {1u, 2u, 4u, 8u, 15u}) {
    near |= down(near, far, by);
    far |= far >> by;
  }
  const std::uint64_t first = start & ~near, others = ~start;
  const std::uint64_t within = ((((first << 1 | inside) & others) + others) ^ others) & others;  // a carry runs through the piece
  inside = (within | first) >> 63;
  return within;
}

#ifdef __AVX512VBMI__
struct Pattern {
  alignas(64) std::uint8_t byte[64];
};
constexpr Pattern make(std::uint32_t step, std::uint32_t add) {
  Pattern p{};
  for (std::uint32_t i = 0; i < 64; ++i) p.byte[i] = static_cast<std::uint8_t>(step == 0 ? i : i / step + (i % step) * add);
  return p;
}
constexpr Pattern identity = make(0, 0), fourfold = make(4, 0);

// Bits of the pairs that join, of up to 16 characters that begin at the bytes `places` of a block; `low` and `high`: the block
// from four bytes before it on. Left and right are hashed as join_filter.h has it.
TOKTIER_INLINE std::uint32_t joined(const TtJoinFilter& t, __m512i places, __m512i low, __m512i high, __mmask16 there) {
  const __m512i quads = _mm512_permutexvar_epi8(_mm512_load_si512(&fourfold), places);
  const __m512i at_left = _mm512_add_epi8(quads, _mm512_set1_epi32(0x03020100));
  const __m512i at_right = _mm512_add_epi8(quads, _mm512_set1_epi32(0x07060504));
  const __m512i l = _mm512_permutex2var_epi8(low, at_left, high);    // the four bytes before the bar
  const __m512i r = _mm512_permutex2var_epi8(low, at_right, high);   // the four behind it
  const auto sixes = [](__m512i bytes) {  // four fields of six bits, the first byte on top
    return _mm512_madd_epi16(_mm512_maddubs_epi16(bytes, _mm512_set1_epi16(0x0140)), _mm512_set1_epi32(0x00011000));
  };
  // Left: the character that ends before the bar.
  const __m512i left_bits = sixes(_mm512_and_si512(l, _mm512_set1_epi32(0x3F3F3F3F)));
  const __mmask16 long1 = _mm512_movepi32_mask(l);
  const auto has_all = [](__m512i v, int bits) {
    return _mm512_cmpeq_epi32_mask(_mm512_and_si512(v, _mm512_set1_epi32(bits)), _mm512_set1_epi32(bits));
  };
  const __mmask16 lead2 = has_all(l, 0x00C00000), lead3 = has_all(l, 0x0000C000);
  const __mmask16 four = long1 & ~lead2 & ~lead3;
  __m512i kept = _mm512_set1_epi32(0xFFFF);
  kept = _mm512_mask_mov_epi32(kept, lead2, _mm512_set1_epi32(0x7FF));
  kept = _mm512_mask_mov_epi32(kept, four, _mm512_set1_epi32(0x1FFFFF));
  const __m512i last = _mm512_srli_epi32(l, 24);
  const __m512i left = _mm512_mask_mov_epi32(_mm512_and_si512(left_bits, kept), static_cast<__mmask16>(~long1), last);
  // Right: by its lead byte.
  const __m512i lead = _mm512_and_si512(r, _mm512_set1_epi32(0xFF));
  const __mmask16 wide = _mm512_cmpge_epu32_mask(lead, _mm512_set1_epi32(0x80));
  const __mmask16 from3 = _mm512_cmpge_epu32_mask(lead, _mm512_set1_epi32(0xE0));
  const __mmask16 from4 = _mm512_cmpge_epu32_mask(lead, _mm512_set1_epi32(0xF0));
  __m512i mask = _mm512_set1_epi32(0x3F3F3F7F), shift = _mm512_set1_epi32(18);
  mask = _mm512_mask_mov_epi32(mask, wide, _mm512_set1_epi32(0x3F3F3F1F));
  mask = _mm512_mask_mov_epi32(mask, from3, _mm512_set1_epi32(0x3F3F3F0F));
  mask = _mm512_mask_mov_epi32(mask, from4, _mm512_set1_epi32(0x3F3F3F07));
  shift = _mm512_mask_mov_epi32(shift, wide, _mm512_set1_epi32(12));
  shift = _mm512_mask_mov_epi32(shift, from3, _mm512_set1_epi32(6));
  shift = _mm512_mask_mov_epi32(shift, from4, _mm512_setzero_si512());
  const __m512i right = _mm512_srlv_epi32(sixes(_mm512_and_si512(r, mask)), shift);

  const auto times = [](__m512i v, tt_u32 by) { return _mm512_mullo_epi32(v, _mm512_set1_epi32(static_cast<int>(by))); };
  const auto asked = [&](const tt_u32* set, std::uint32_t set_shift, __m512i left_hash, __m512i right_hash) {
    const __m512i bit = _mm512_srl_epi32(_mm512_add_epi32(left_hash, right_hash), _mm_cvtsi32_si128(static_cast<int>(set_shift)));
    const __m512i word = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), there, _mm512_srli_epi32(bit, 5), set, 4);
    const __m512i one = _mm512_sllv_epi32(_mm512_set1_epi32(1), _mm512_and_si512(bit, _mm512_set1_epi32(31)));
    return static_cast<std::uint32_t>(_mm512_mask_test_epi32_mask(there, word, one));
  };
  const __m512i left_hash = times(left, TT_JOIN_A), right_hash = times(right, TT_JOIN_B);
  std::uint32_t join = asked(t.pairs, t.pair_shift, left_hash, right_hash);
  if (t.fragments != nullptr) {
    const __m512i fragment = _mm512_set1_epi32(TT_JOIN_FRAGMENT);
    const __m512i last_hash = times(_mm512_or_si512(last, fragment), TT_JOIN_A);
    const __m512i lead_hash = times(_mm512_or_si512(lead, fragment), TT_JOIN_B);
    join |= asked(t.fragments, t.fragment_shift, left_hash, lead_hash);
    join |= asked(t.fragments, t.fragment_shift, last_hash, right_hash);
    join |= asked(t.fragments, t.fragment_shift, last_hash, lead_hash);
  }
  return join;
}

TOKTIER_INLINE std::uint64_t cuts_among(const TtJoinFilter& t, const std::uint8_t* text, std::uint32_t size, std::uint32_t base,
                                        std::uint64_t candidates) {
  // Bytes base - 4 .. base + 123 of the segment; zeros outside.
  const std::uint32_t behind = size - base;  // at least 1
  const std::uint64_t front = base == 0 ? ~std::uint64_t{0xF} : ~std::uint64_t{0};
  const auto first = [](std::uint32_t n) { return n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1; };
  const __m512i low = _mm512_maskz_loadu_epi8(front & first(behind + 4), text + std::int64_t{base} - 4);
  const __m512i high = _mm512_maskz_loadu_epi8(behind > 60 ? first(behind - 60) : 0, text + base + 60);
  __m512i places = _mm512_maskz_compress_epi8(candidates, _mm512_load_si512(&identity));
  const auto count = static_cast<std::uint32_t>(__builtin_popcountll(candidates));
  std::uint64_t cut = 0;
  for (std::uint32_t k = 0; k < count; k += 16) {
    const auto there = static_cast<__mmask16>(first(count - k < 16 ? count - k : 16));
    cut |= std::uint64_t{there & ~joined(t, places, low, high, there)} << k;
    places = _mm512_alignr_epi64(_mm512_setzero_si512(), places, 2);
  }
  return _pdep_u64(cut, candidates);
}
#endif

TOKTIER_INLINE std::uint64_t cuts_one_by_one(const TtJoinFilter& t, const std::uint8_t* text, std::uint32_t base,
                                             std::uint64_t candidates) {
  std::uint64_t cut = 0;
  for (std::uint64_t rest = candidates; rest != 0; rest &= rest - 1) {
    const std::uint8_t* const p = text + base + __builtin_ctzll(rest);
    tt_u32 length;
    const tt_u32 a = tt_utf8_previous(p, length), b = tt_utf8_next(p, length);
    if (!tt_chars_join(t, a, b)) cut |= rest & (~rest + 1);
  }
  return cut;
}

// Words of up to 31 bytes are looked up whole, which costs less than to cut them. Not those with characters of three bytes:
// pieces of Han or kana are phrases, which hardly come again, and their characters do.
bool cut(const TtJoinFilter& t, bool ascii, const std::uint8_t* text, std::uint32_t size, const SplitWindow& w,
         std::uint64_t* cuts) {
  std::uint64_t any = 0, wide_before = 0, from3_before = 0, inside = w.begin > 0;
  for (std::uint32_t k = 1; k <= 3 && k <= w.begin; ++k) {
    wide_before |= k == 1 && text[w.begin - 1] >= 0x80;
    from3_before |= std::uint64_t{text[w.begin - k] >= 0xE0} << (3 - k);
  }
  const std::uint32_t words = w.words();
  for (std::uint32_t i = 0; i < words; ++i) {
    const std::uint32_t base = w.begin + i * 64, count = w.end - base < 64 ? w.end - base : 64;
    std::uint64_t candidates = w.ascii ? count < 64 ? (std::uint64_t{1} << count) - 1 : ~std::uint64_t{0} : w.lead[i];
    candidates &= ~w.start[i];
    if (!ascii) {
      const Bytes64 bytes = look_at(text + base, count);
      const bool last = base + count == size;  // else a piece may go on behind the window: it is taken for a long one
      const std::uint64_t start = w.start[i] | (last && count < 64 ? std::uint64_t{1} << count : 0);
      const std::uint64_t long_ones = in_long_pieces(start, i + 1 < words ? w.start[i + 1] : last, inside);
      candidates &= bytes.wide | bytes.wide << 1 | wide_before;
      if (!cuts_all) candidates &= long_ones | bytes.from3 | bytes.from3 << 3 | from3_before;
      wide_before = bytes.wide >> 63;
      from3_before = bytes.from3 >> 61;
    }
    cuts[i] = 0;
    if (candidates == 0) continue;
    if (TOKTIER_FAULT(cut_joined)) {
      for (std::uint64_t rest = candidates; rest != 0; rest &= rest - 1)
        if (text[base + __builtin_ctzll(rest)] == 0xC3 && text[base + __builtin_ctzll(rest) + 1] == 0xA9)
          cuts[i] |= rest & (~rest + 1);
      any |= cuts[i];
      continue;
    }
#ifdef __AVX512VBMI__
    if (t.symbol.stage1 == nullptr)
      cuts[i] = cuts_among(t, text, size, base, candidates);
    else
#endif
      cuts[i] = cuts_one_by_one(t, text, base, candidates);
    any |= cuts[i];
  }
  return any != 0;
}

void mark(const std::uint64_t* bits, const std::uint64_t* marked, std::uint32_t words, std::uint8_t mark, std::uint8_t* out) {
  for (std::uint32_t i = 0; i < words; ++i) {
#ifdef __AVX512VBMI__
    _mm512_storeu_si512(out, _mm512_maskz_set1_epi8(_pext_u64(marked[i], bits[i]), static_cast<char>(mark)));
    out += __builtin_popcountll(bits[i]);
#else
    for (std::uint64_t rest = bits[i]; rest != 0; rest &= rest - 1)
      *out++ = (marked[i] & rest & (~rest + 1)) != 0 ? mark : std::uint8_t{0};
#endif
  }
}

}  // namespace
}  // namespace TOKTIER_LANE_NAMESPACE

const CutLanes TOKTIER_LANE_TABLE(cut_lanes) = {
    TOKTIER_LANE_NAMESPACE::cut,
    TOKTIER_LANE_NAMESPACE::mark,
};

}  // namespace toktier
