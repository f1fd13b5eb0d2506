// Six words are merged in turns. A turn ends when the pairs beside the new symbol are known and their lines of the table are
// asked for; by the next turn of the word they have come.
#include "merge_lanes.h"

#include "engine/faults.h"

#ifdef __SSE4_1__
#include <immintrin.h>
#endif

namespace toktier {
namespace TOKTIER_LANE_NAMESPACE {
namespace {

constexpr std::uint32_t lanes = 6;

// A symbol stays at the position of its first byte. `code`: rank of its merge with the next symbol, and its position: the least
// one is the next merge, leftmost of its kind.
struct alignas(64) Lane {
  std::uint32_t code[longest_merged];
  std::uint32_t id[longest_merged];
  std::uint32_t alive;         // bit: a symbol begins here
  std::uint32_t slots;         // size, rounded up to whole vectors
  std::uint32_t left, at;      // the pairs that were asked for begin here; TT_NONE: none
  bool begun;
  MergeWord* word;
};

TOKTIER_INLINE std::uint32_t after(const Lane& l, std::uint32_t at) {  // position of the next symbol, or TT_NONE
  const std::uint64_t rest = l.alive & ~((std::uint64_t{2} << at) - 1);
  return rest == 0 ? TT_NONE : static_cast<std::uint32_t>(__builtin_ctzll(rest));
}
TOKTIER_INLINE std::uint32_t before(const Lane& l, std::uint32_t at) {
  const std::uint32_t rest = l.alive & ((1u << at) - 1);
  return rest == 0 ? TT_NONE : 31 - static_cast<std::uint32_t>(__builtin_clz(rest));
}

TOKTIER_INLINE std::uint32_t least(const Lane& l) {
#if defined(__AVX512F__)
  const __m512i low = _mm512_load_si512(l.code);
  return _mm512_reduce_min_epu32(l.slots <= 16 ? low : _mm512_min_epu32(low, _mm512_load_si512(l.code + 16)));
#elif defined(__SSE4_1__)
  __m128i m = _mm_load_si128(reinterpret_cast<const __m128i*>(l.code));
  for (std::uint32_t i = 4; i < l.slots; i += 4)
    m = _mm_min_epu32(m, _mm_load_si128(reinterpret_cast<const __m128i*>(l.code + i)));
  m = _mm_min_epu32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_min_epu32(m, _mm_shuffle_epi32(m, 0xB1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(m));
#else
  std::uint32_t m = l.code[0];
  for (std::uint32_t i = 1; i < l.word->size; ++i) m = l.code[i] < m ? l.code[i] : m;
  return m;
#endif
}

TOKTIER_INLINE std::uint32_t place_of(const TtPairTable& t, std::uint32_t left, std::uint32_t right) {
  return tt_pair_place(tt_pair_scatter(t, left, right), t.displacement[tt_pair_bucket(t, left, right)], t.n_entries);
}
TOKTIER_INLINE void find(const MergeTables& t, Lane& l, std::uint32_t at, std::uint32_t next) {
  const std::uint64_t entry = t.pairs.entries[place_of(t.pairs, l.id[at], l.id[next])];
  const bool same = entry >> TT_PAIR_ORDER_BITS == (std::uint64_t{l.id[at]} << TT_PAIR_ID_BITS | l.id[next]);
  l.code[at] = same ? (static_cast<std::uint32_t>(entry) & TT_PAIR_ORDERS) << 5 | at : TT_NONE;
}
TOKTIER_INLINE void ask(const MergeTables& t, const Lane& l, std::uint32_t at, std::uint32_t next) {
  __builtin_prefetch(t.pairs.entries + place_of(t.pairs, l.id[at], l.id[next]));
}

TOKTIER_INLINE void begin(const MergeTables& t, Lane& l, MergeWord& word) {
  const std::uint32_t n = word.size;
  l.word = &word;
  l.alive = static_cast<std::uint32_t>((std::uint64_t{1} << n) - 1);
  l.slots = (n + 15) & ~15u;
  l.begun = false;
  for (std::uint32_t i = 0; i < n; ++i) l.id[i] = t.byte_symbol[word.text[i]];
  for (std::uint32_t i = 0; i + 1 < n; ++i) ask(t, l, i, i + 1);
  for (std::uint32_t i = n - 1; i < l.slots; ++i) l.code[i] = TT_NONE;
}

// One merge; false when there was none left.
TOKTIER_INLINE bool step(const MergeTables& t, Lane& l) {
  if (!l.begun) {
    l.begun = true;
    for (std::uint32_t i = 0; i + 1 < l.word->size; ++i) find(t, l, i, i + 1);
  } else {
    if (l.left != TT_NONE) find(t, l, l.left, l.at);
    const std::uint32_t next = after(l, l.at);
    if (next != TT_NONE)
      find(t, l, l.at, next);
    else
      l.code[l.at] = TT_NONE;
  }
  const std::uint32_t best = least(l);
  if (best == TT_NONE) return false;
  const std::uint32_t at = best & 31, gone = after(l, at);
  const std::uint32_t order = (best >> 5) + (TOKTIER_FAULT(product_order) && at == 7);
  l.id[at] = t.pairs.product == nullptr ? order : t.pairs.product[order];
  l.code[gone] = TT_NONE;
  l.alive &= ~(1u << gone);
  l.at = at;
  l.left = before(l, at);
  const std::uint32_t next = after(l, at);
  if (l.left != TT_NONE) ask(t, l, l.left, at);
  if (next != TT_NONE) ask(t, l, at, next);
  return true;
}

TOKTIER_INLINE void finish(Lane& l) {
  std::uint32_t n = 0;
  for (std::uint32_t rest = l.alive; rest != 0; rest &= rest - 1) l.word->ids[n++] = l.id[__builtin_ctz(rest)];
  l.word->count = n - (TOKTIER_FAULT(merge_lane) && n > 2);
}

void merge_in_turns(const MergeTables& t, MergeWord* words, std::uint32_t count) {
  Lane lane[lanes];
  std::uint32_t next = 0, busy = 0;
  if (TOKTIER_FAULT(merge_rest) && count % lanes != 0) words[--count].count = 0;
  for (; busy < lanes && next < count; ++busy, ++next) begin(t, lane[busy], words[next]);
  while (busy > 0)
    for (std::uint32_t i = 0; i < busy; ++i) {
      if (step(t, lane[i])) continue;
      if (TOKTIER_FAULT(merge_neighbour) && i == lanes - 1) lane[i].id[0] = lane[i - 1].id[0];
      finish(lane[i]);
      if (next < count) {
        begin(t, lane[i], words[next++]);
      } else {
        --busy;
        if (i != busy) lane[i] = lane[busy];
        --i;
      }
    }
}

#ifdef __AVX512VBMI__
// Sixteen words at once, a vector for each position: the least code of each word, the product of that merge, the two new pairs.
struct alignas(64) Group {
  std::uint32_t code[longest_merged][16];
  std::uint32_t id[longest_merged][16];
  __m512i alive;          // as in Lane
  std::uint32_t rows;     // positions in use
  __mmask16 there;
  MergeWord* word[16];
};

struct Wide {
  __m512i left_bucket, right_bucket, left_scatter, right_scatter, entry_count;
  __m128i bucket_shift;
};

TOKTIER_INLINE Wide widen(const TtPairTable& t) {
  const auto all = [](std::uint32_t v) { return _mm512_set1_epi32(static_cast<int>(v)); };
  return {all(t.multiply[0]), all(t.multiply[1]), all(t.multiply[2]), all(t.multiply[3]), all(t.n_entries),
          _mm_cvtsi32_si128(static_cast<int>(t.bucket_shift))};
}

// Codes of the pairs, at the positions `at`; all ones where there is no rule, or no pair.
TOKTIER_INLINE __m512i codes_of(const TtPairTable& t, const Wide& w, __m512i left, __m512i right, __m512i at, __mmask16 there) {
  const __m512i none = _mm512_set1_epi32(-1), zero = _mm512_setzero_si512();
  const __m512i bucket = _mm512_srl_epi32(
      _mm512_add_epi32(_mm512_mullo_epi32(left, w.left_bucket), _mm512_mullo_epi32(right, w.right_bucket)), w.bucket_shift);
  // Bytes come in the aligned words that hold them: nothing behind the table is read.
  const __m512i four = _mm512_mask_i32gather_epi32(zero, there, _mm512_srli_epi32(bucket, 2), t.displacement, 4);
  const __m512i displaced = _mm512_and_si512(
      _mm512_srlv_epi32(four, _mm512_slli_epi32(_mm512_and_si512(bucket, _mm512_set1_epi32(3)), 3)), _mm512_set1_epi32(0xFF));
  const __m512i scatter =
      _mm512_add_epi32(_mm512_mullo_epi32(left, w.left_scatter), _mm512_mullo_epi32(right, w.right_scatter));
  const __m512i hash = _mm512_mullo_epi32(
      _mm512_xor_si512(scatter, _mm512_mullo_epi32(displaced, _mm512_set1_epi32(static_cast<int>(TT_DISPLACE)))),
      _mm512_set1_epi32(static_cast<int>(TT_SCATTER)));
  const __m512i even = _mm512_srli_epi64(_mm512_mul_epu32(hash, w.entry_count), 32);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(hash, 32), w.entry_count);
  const __m512i place = _mm512_mask_mov_epi32(even, 0xAAAA, odd);
  const __m512i low =
      _mm512_mask_i32gather_epi64(zero, static_cast<__mmask8>(there), _mm512_castsi512_si256(place), t.entries, 8);
  const __m512i high =
      _mm512_mask_i32gather_epi64(zero, static_cast<__mmask8>(there >> 8), _mm512_extracti64x4_epi64(place, 1), t.entries, 8);
  const __m512i evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i lower = _mm512_permutex2var_epi32(low, evens, high);
  const __m512i upper = _mm512_permutex2var_epi32(low, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), high);
  const __mmask16 same =
      _mm512_mask_cmpeq_epi32_mask(there, upper, _mm512_or_si512(_mm512_slli_epi32(left, 12), _mm512_srli_epi32(right, 8))) &
      _mm512_cmpeq_epi32_mask(_mm512_srli_epi32(lower, 24), _mm512_and_si512(right, _mm512_set1_epi32(0xFF)));
  const __m512i rank = _mm512_and_si512(lower, _mm512_set1_epi32(static_cast<int>(TT_PAIR_ORDERS)));
  return _mm512_mask_or_epi32(none, same, _mm512_slli_epi32(rank, 5), at);
}
static_assert(TT_PAIR_ID_BITS == 20 && TT_PAIR_ORDER_BITS == 24);

TOKTIER_INLINE void begin(const MergeTables& t, const Wide& w, Group& g, MergeWord* const* words, std::uint32_t count) {
  std::uint32_t size[16], rows = 1;
  for (std::uint32_t lane = 0; lane < 16; ++lane) {
    const MergeWord* const word = lane < count ? words[lane] : nullptr;
    g.word[lane] = lane < count ? words[lane] : nullptr;
    size[lane] = word == nullptr ? 0 : word->size;
    if (size[lane] > rows) rows = size[lane];
    for (std::uint32_t i = 0; i < size[lane]; ++i) g.id[i][lane] = t.byte_symbol[word->text[i]];
  }
  if (TOKTIER_FAULT(merge_rest) && count < 16) size[count - 1] = 0;
  const __m512i sizes = _mm512_loadu_si512(size), one = _mm512_set1_epi32(1);
  g.rows = rows;
  g.alive = _mm512_sub_epi32(_mm512_sllv_epi32(one, sizes), one);
  g.there = static_cast<__mmask16>((1u << count) - 1);
  for (std::uint32_t i = 0; i + 1 < rows; ++i) {
    const __mmask16 pair = _mm512_cmpgt_epu32_mask(sizes, _mm512_set1_epi32(static_cast<int>(i + 1)));
    _mm512_store_si512(g.code[i], codes_of(t.pairs, w, _mm512_load_si512(g.id[i]), _mm512_load_si512(g.id[i + 1]),
                                           _mm512_set1_epi32(static_cast<int>(i)), pair));
  }
  _mm512_store_si512(g.code[rows - 1], _mm512_set1_epi32(-1));
}

// One merge of every word that has one; false when none had.
TOKTIER_INLINE bool step(const MergeTables& t, const Wide& w, Group& g) {
  const __m512i none = _mm512_set1_epi32(-1), zero = _mm512_setzero_si512(), one = _mm512_set1_epi32(1);
  __m512i best = _mm512_load_si512(g.code[0]);
  for (std::uint32_t i = 1; i + 1 < g.rows; ++i) best = _mm512_min_epu32(best, _mm512_load_si512(g.code[i]));
  const __mmask16 busy = _mm512_cmpneq_epi32_mask(best, none);
  if (busy == 0) return false;
  const __m512i at = _mm512_and_si512(best, _mm512_set1_epi32(31));
  __m512i order = _mm512_srli_epi32(best, 5);
  if (TOKTIER_FAULT(product_order))
    order = _mm512_mask_add_epi32(order, busy & _mm512_cmpeq_epi32_mask(at, _mm512_set1_epi32(7)), order, one);
  const __m512i product = t.pairs.product == nullptr ? order : _mm512_mask_i32gather_epi32(zero, busy, order, t.pairs.product, 4);
  // The symbol behind goes; the one behind that, and the one before, are its new neighbours.
  const auto top = [&](__m512i bits) { return _mm512_sub_epi32(_mm512_set1_epi32(31), _mm512_lzcnt_epi32(bits)); };
  const auto lowest = [&](__m512i bits) { return _mm512_and_si512(bits, _mm512_sub_epi32(zero, bits)); };
  const __m512i here = _mm512_sllv_epi32(one, at), below = _mm512_sub_epi32(here, one);
  const __m512i behind = _mm512_andnot_si512(_mm512_or_si512(below, here), g.alive), gone_bit = lowest(behind);
  const __m512i gone = top(gone_bit), left = top(_mm512_and_si512(g.alive, below));
  const __m512i rest = _mm512_xor_si512(behind, gone_bit), right = top(lowest(rest));
  g.alive = _mm512_mask_xor_epi32(g.alive, busy, g.alive, gone_bit);
  const __mmask16 has_left = busy & _mm512_test_epi32_mask(g.alive, below), has_right = busy & _mm512_test_epi32_mask(rest, rest);
  __m512i left_id = zero, right_id = zero;
  for (std::uint32_t i = 0; i < g.rows; ++i) {
    const __m512i row = _mm512_set1_epi32(static_cast<int>(i)), id = _mm512_load_si512(g.id[i]);
    left_id = _mm512_mask_mov_epi32(left_id, _mm512_cmpeq_epi32_mask(left, row), id);
    right_id = _mm512_mask_mov_epi32(right_id, _mm512_cmpeq_epi32_mask(right, row), id);
    _mm512_mask_store_epi32(g.id[i], _mm512_mask_cmpeq_epi32_mask(busy, at, row), product);
  }
  const __m512i left_code = codes_of(t.pairs, w, left_id, product, left, has_left);
  const __m512i right_code = codes_of(t.pairs, w, product, right_id, at, has_right);
  for (std::uint32_t i = 0; i + 1 < g.rows; ++i) {
    const __m512i row = _mm512_set1_epi32(static_cast<int>(i));
    __m512i code = _mm512_load_si512(g.code[i]);
    code = _mm512_mask_mov_epi32(code, _mm512_mask_cmpeq_epi32_mask(has_left, left, row), left_code);
    code = _mm512_mask_mov_epi32(code, _mm512_mask_cmpeq_epi32_mask(busy, at, row), right_code);
    code = _mm512_mask_mov_epi32(code, _mm512_mask_cmpeq_epi32_mask(busy, gone, row), none);
    _mm512_store_si512(g.code[i], code);
  }
  return true;
}

TOKTIER_INLINE void finish(Group& g) {
  alignas(64) std::uint32_t alive[16];
  _mm512_store_si512(alive, g.alive);
  for (std::uint32_t lane = 0; lane < 16 && g.word[lane] != nullptr; ++lane) {
    std::uint32_t n = 0;
    const std::uint32_t from = lane - (TOKTIER_FAULT(merge_neighbour) && lane == 15);
    for (std::uint32_t rest = alive[lane]; rest != 0; rest &= rest - 1) g.word[lane]->ids[n++] = g.id[__builtin_ctz(rest)][from];
    g.word[lane]->count = n - (TOKTIER_FAULT(merge_lane) && lane == 1);
  }
}

// Words of like length together; two groups in turns, so that one has work while the other waits for its tables.
void merge_side_by_side(const MergeTables& t, MergeWord* words, std::uint32_t count) {
  constexpr std::uint32_t few = 14, most = 64;
  for (; count >= few; words += count < most ? count : most, count -= count < most ? count : most) {
    const std::uint32_t n = count < most ? count : most;
    MergeWord* order[most];
    std::uint32_t first[longest_merged + 2] = {};
    for (std::uint32_t i = 0; i < n; ++i) ++first[words[i].size + 1];
    for (std::uint32_t i = 1; i < longest_merged + 2; ++i) first[i] += first[i - 1];
    for (std::uint32_t i = 0; i < n; ++i) order[first[words[i].size]++] = &words[i];
    const Wide w = widen(t.pairs);
    for (std::uint32_t at = 0; at < n; at += 32) {
      Group one, two;
      const std::uint32_t in_one = n - at < 16 ? n - at : 16, in_two = n - at - in_one < 16 ? n - at - in_one : 16;
      begin(t, w, one, order + at, in_one);
      if (in_two == 0) {
        while (step(t, w, one)) {
        }
        finish(one);
        continue;
      }
      begin(t, w, two, order + at + in_one, in_two);
      bool first_busy = true, second_busy = true;
      while (first_busy || second_busy) {
        first_busy = step(t, w, one);
        second_busy = step(t, w, two);
      }
      finish(one);
      finish(two);
    }
  }
  if (count != 0) merge_in_turns(t, words, count);
}
#endif

}  // namespace
}  // namespace TOKTIER_LANE_NAMESPACE

const MergeLanes TOKTIER_LANE_TABLE(merge_lanes) = {
#ifdef __AVX512VBMI__
    TOKTIER_LANE_NAMESPACE::merge_side_by_side,
#else
    TOKTIER_LANE_NAMESPACE::merge_in_turns,
#endif
};

}  // namespace toktier
