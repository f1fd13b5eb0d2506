// Look-ups of a window in blocks: the keys and lines of a block first, so that its lines are under way, then the comparisons.
// Neither has a branch that depends on the text.
#include "word_lanes.h"

#include <cstddef>
#include <cstring>

#include "engine/faults.h"
#include "shared/hash.h"

#if defined(__AES__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace toktier {
namespace TOKTIER_LANE_NAMESPACE {
namespace {

constexpr std::uint32_t block = 256;  // lines of a block: 16 KiB, a third of the nearest cache
constexpr WordRows rows{};

#ifdef __AES__
using Key = __m128i;

TOKTIER_INLINE Key finish(Key bytes, std::uint32_t row) {
  return _mm_or_si128(bytes, _mm_load_si128(reinterpret_cast<const __m128i*>(&rows.top[row])));
}
TOKTIER_INLINE Key load_within(const std::uint8_t* p, std::uint32_t row) {
  return finish(_mm_and_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)),
                              _mm_load_si128(reinterpret_cast<const __m128i*>(&rows.keep[row]))),
                row);
}
TOKTIER_INLINE Key load_at_end(const std::uint8_t* p, std::uint32_t row, std::uint32_t length) {
#ifdef __AVX512BW__
  // Not by a copy, which would have to be waited for.
  const Key all = _mm_maskz_loadu_epi8(static_cast<__mmask16>(length <= longest_word ? (1u << length) - 1 : 0), p);
#else
  alignas(16) std::uint8_t bytes[16] = {};
  if (length <= longest_word) std::memcpy(bytes, p, length);
  const Key all = _mm_load_si128(reinterpret_cast<const __m128i*>(bytes));
#endif
  return finish(_mm_and_si128(all, _mm_load_si128(reinterpret_cast<const __m128i*>(&rows.keep[row]))), row);
}
TOKTIER_INLINE std::uint32_t hash(Key key) {
  const __m128i salt = _mm_set_epi64x(0x243F6A8885A308D3, 0x13198A2E03707344);
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_aesenc_si128(_mm_aesenc_si128(key, salt), salt)));
}
TOKTIER_INLINE void copy_value(void* to, const WordValue* value) {
  _mm_storeu_si128(static_cast<__m128i*>(to), _mm_load_si128(reinterpret_cast<const __m128i*>(value)));
}
TOKTIER_INLINE void store(WordKey& to, Key key) { _mm_storeu_si128(reinterpret_cast<__m128i*>(&to), key); }
TOKTIER_INLINE Key load(const WordKey& from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(&from)); }
#else
using Key = WordKey;

TOKTIER_INLINE Key finish(Key k, std::uint32_t row) {
  return {(k.low & rows.keep[row].low) | rows.top[row].low, (k.high & rows.keep[row].high) | rows.top[row].high};
}
TOKTIER_INLINE Key load_within(const std::uint8_t* p, std::uint32_t row) {
  Key k;
  std::memcpy(&k, p, sizeof k);
  return finish(k, row);
}
TOKTIER_INLINE Key load_at_end(const std::uint8_t* p, std::uint32_t row, std::uint32_t length) {
  Key k{};
  if (length <= longest_word) std::memcpy(&k, p, length);
  return finish(k, row);
}
TOKTIER_INLINE std::uint32_t hash(const Key& k) {
  const std::uint64_t h = (k.low * TT_HASH_A ^ k.high) * TT_HASH_B;
  return static_cast<std::uint32_t>((h ^ h >> 32) * TT_HASH_A >> 32);
}
TOKTIER_INLINE void copy_value(void* to, const WordValue* value) { std::memcpy(to, value, sizeof *value); }
TOKTIER_INLINE void store(WordKey& to, const Key& key) { to = key; }
TOKTIER_INLINE Key load(const WordKey& from) { return from; }
#endif

std::uint32_t line_of(const WordKey& key, std::uint32_t mask) { return hash(load(key)) & mask; }

// Row of a piece, or of a span with its kind.
TOKTIER_INLINE std::uint32_t row_of(std::uint32_t length) { return length <= longest_word ? length : longest_word + 1; }

TOKTIER_INLINE Key key_of(const std::uint8_t* text, std::uint32_t row, std::uint32_t length, bool at_end) {
  Key key = at_end ? load_at_end(text, row, length) : load_within(text, row);
  if (TOKTIER_FAULT(word_key) && length == longest_word) {
    WordKey faulty;
    store(faulty, key);
    faulty.high &= ~(std::uint64_t{0xFF} << 48);
    key = load(faulty);
  }
  return key;
}

// Which entry of the line has the key; false when neither has.
TOKTIER_INLINE bool is_in(const WordLine* line, const Key& key, std::size_t& byte_of_value) {
#ifdef __AVX512F__
  const std::uint32_t same = _mm512_cmpeq_epi64_mask(_mm512_load_si512(line), _mm512_broadcast_i32x4(key));
  // Bit 0: the first key, bit 4: the second one, which is half the size of an entry.
  const std::uint32_t both = TOKTIER_FAULT(word_hash) ? same : same & same >> 1;
  static_assert(sizeof(WordEntry) == 2 * 0x10);
  byte_of_value = offsetof(WordEntry, value) + 2 * std::size_t{both & 0x10};
  return (both & 0x11) != 0;
#else
  WordKey wanted;
  store(wanted, key);
  const auto differ = [](const WordKey& a, const WordKey& b) {
    return (a.low ^ b.low) | (TOKTIER_FAULT(word_hash) ? 0 : a.high ^ b.high);
  };
  const bool in_first = differ(line->entry[0].key, wanted) == 0, in_second = differ(line->entry[1].key, wanted) == 0;
  byte_of_value = offsetof(WordEntry, value) + sizeof(WordEntry) * in_second;
  return in_first | in_second;
#endif
}
TOKTIER_INLINE const void* value_at(const WordLine* line, std::size_t byte) {
  return reinterpret_cast<const std::uint8_t*>(line) + byte;
}

// Keys and lines of spans [first, first + count) of the window, whose lines are then on their way. What the window holds is
// copied out first: to the compiler any store might change it.
template <bool AtEnd, bool Kinds>
TOKTIER_INLINE void prepare(WordWindow& w, std::uint32_t first, std::uint32_t count, std::uint32_t* __restrict line,
                            WordKey* __restrict keys) {
  const std::uint32_t* const __restrict bound = w.bound + first;
  const std::uint8_t* const __restrict kind = Kinds ? w.kind + first : nullptr;
  const std::uint8_t* const text = w.text;
  const WordLine* const lines = w.lines;
  const std::uint32_t mask = w.mask, size = w.size;
  // Rows first, many at a time.
  alignas(64) std::uint32_t row[block];
  std::uint32_t longest = 0;
  for (std::uint32_t k = 0; k < count; ++k) {
    row[k] = row_of(bound[k + 1] - bound[k]) + (Kinds ? kind[k] : 0);
    longest |= (row[k] & 0x50) == longest_word + 1;  // dropped ones have no key, and need none
  }
  for (std::uint32_t k = 0; k < count; ++k) {
    const std::uint32_t begin = bound[k];
    const Key key = key_of(text + begin, row[k], bound[k + 1] - begin, AtEnd && begin + 16 > size);
    const std::uint32_t at = hash(key) & mask;
    store(keys[k], key);
    line[k] = at;
    __builtin_prefetch(lines + at);
  }
  if (longest == 0) return;
  std::uint32_t longer = w.longer_count;
  for (std::uint32_t k = 0; k < count; ++k) {
    const bool too_long = (row[k] & 0x50) == longest_word + 1;
    w.longer[longer] = first + k;
    longer += too_long;
    line[k] = too_long ? mask + 1 : line[k];
  }
  w.longer_count = longer;
}

TOKTIER_INLINE void compare(WordWindow& w, std::uint32_t first, std::uint32_t count, const std::uint32_t* __restrict line,
                            const WordKey* __restrict keys) {
  const WordLine* const lines = w.lines;
  WordValue* const __restrict value = w.value + first;
  std::uint32_t* __restrict to = w.missed + w.missed_count;
  for (std::uint32_t k = 0; k < count; ++k) {
    const WordLine* const l = lines + line[k];
    std::size_t byte;
    const bool none = !is_in(l, load(keys[k]), byte);
    copy_value(&value[k], static_cast<const WordValue*>(value_at(l, byte)));
    *to = first + k;
    to += none;
  }
  w.missed_count = static_cast<std::uint32_t>(to - w.missed);
}

template <bool Kinds>
TOKTIER_INLINE void look_up_all(WordWindow& w) {
  std::uint32_t line[block];
  alignas(64) WordKey keys[block];
  for (std::uint32_t first = 0; first < w.count; first += block) {
    const std::uint32_t count = w.count - first < block ? w.count - first : block;
    if (w.bound[first + count - 1] + 16 <= w.size)
      prepare<false, Kinds>(w, first, count, line, keys);
    else
      prepare<true, Kinds>(w, first, count, line, keys);
    if (TOKTIER_FAULT(block_border) && count == block) keys[block - 1] = keys[block - 2], line[block - 1] = line[block - 2];
    compare(w, first, count, line, keys);
  }
}

void look_up(WordWindow& w) {
  w.missed_count = w.longer_count = 0;
  if (w.kind == nullptr)
    look_up_all<false>(w);
  else
    look_up_all<true>(w);
}

template <bool AtEnd>
TOKTIER_INLINE std::uint32_t* emit_run(const WordWindow& w, std::uint32_t from, std::uint32_t to, std::uint32_t* __restrict out) {
  const std::uint8_t* const text = w.text;
  const std::uint32_t* const __restrict bound = w.bound;
  const WordLine* const lines = w.lines;
  const std::uint32_t mask = w.mask;
  std::uint32_t begin = bound[from];
  for (std::uint32_t k = from; k < to; ++k) {
    const std::uint32_t end = bound[k + 1], length = end - begin;
    if (length > longest_word) return nullptr;
    const Key key = key_of(text + begin, length, length, AtEnd);
    const WordLine* const line = lines + (hash(key) & mask);
    std::size_t byte;
    if (!is_in(line, key, byte)) return nullptr;
    const auto* const value = static_cast<const WordValue*>(value_at(line, byte));
    const std::uint32_t count = value->count;
    if (count > inline_ids) return nullptr;
    copy_value(out, value);
    out += count;
    begin = end;
  }
  return out;
}

bool emit_known(const WordWindow& w, std::uint32_t*& out) {
  std::uint32_t whole = w.count;  // pieces of which 16 bytes can be read
  while (whole > 0 && w.bound[whole - 1] + 16 > w.size) --whole;
  std::uint32_t* to = emit_run<false>(w, 0, whole, out);
  if (to != nullptr) to = emit_run<true>(w, whole, w.count, to);
  if (to == nullptr) return false;
  out = to;
  return true;
}

void list_keys(const WordWindow& w, const std::uint32_t* __restrict spans, std::uint32_t count, WordKey* __restrict keys,
               std::uint32_t* __restrict lines) {
  const std::uint32_t mask = w.mask;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t span = spans[i], begin = w.bound[span], length = w.bound[span + 1] - begin;
    // A long one is one that is dropped: it has no key.
    const Key key = key_of(w.text + begin, row_of(length) + (w.kind == nullptr ? 0 : w.kind[span]), length, begin + 16 > w.size);
    lines[i] = hash(key) & mask;
    __builtin_prefetch(w.lines + (lines[i] ^ 1));
    store(keys[i], key);
  }
}

std::uint32_t emit(const WordValue* values, std::uint32_t from, std::uint32_t count, std::uint32_t*& out) {
  std::uint32_t* to = out;
  for (; from < count; ++from) {
    const std::uint32_t n = values[from].count;
    if (n > inline_ids) break;
    std::memcpy(to, values[from].ids, sizeof(WordValue));
    to += n;
  }
  out = to;
  return from;
}

// Slots of a line with the mark, as bits; and whether one of them is empty, which ends a search.
TOKTIER_INLINE std::uint32_t marked(const std::uint32_t* slots, std::uint32_t mark, bool& ends) {
#ifdef __AVX512F__
  const __m512i line = _mm512_loadu_si512(slots);
  ends = _mm512_cmpeq_epi32_mask(line, _mm512_set1_epi32(-1)) != 0;
  return _mm512_mask_cmpneq_epi32_mask(_mm512_cmpeq_epi32_mask(_mm512_srli_epi32(line, TT_SLOT_ID_BITS),
                                                               _mm512_set1_epi32(static_cast<int>(mark))),
                                       line, _mm512_set1_epi32(-1));
#else
  std::uint32_t bits = 0;
  ends = slots[TT_LINE_SLOTS - 1] == TT_NONE;
  for (std::uint32_t i = 0; i < TT_LINE_SLOTS; ++i)
    bits |= std::uint32_t{slots[i] >> TT_SLOT_ID_BITS == mark && slots[i] != TT_NONE} << i;
  return bits;
#endif
}

// In three steps, so that the lines of the table, and then the records, of all words are under way together.
void find_entries(const TtPieceTable& t, const WordKey* keys, std::uint32_t count, std::uint32_t* ids) {
  struct Search {
    TtPieceKey key;
    std::uint32_t line, mark, candidates;
    bool ends;
  } search[most_found];
  for (std::uint32_t k = 0; k < count; ++k) {
    Search& s = search[k];
    s.key = {keys[k].low, keys[k].high & ~(std::uint64_t{0x80} << 56)};
    const std::uint64_t hash = tt_hash_key(s.key);
    s.line = tt_piece_line(hash, t.n_lines);
    s.mark = tt_piece_mark(hash);
    __builtin_prefetch(t.lines + std::size_t{s.line} * TT_LINE_SLOTS);
  }
  for (std::uint32_t k = 0; k < count; ++k) {
    Search& s = search[k];
    const std::uint32_t* const slots = t.lines + std::size_t{s.line} * TT_LINE_SLOTS;
    s.candidates = marked(slots, s.mark, s.ends);
    if (s.candidates != 0) __builtin_prefetch(t.keys + 2 * std::size_t{slots[__builtin_ctz(s.candidates)] & TT_SLOT_IDS});
  }
  for (std::uint32_t k = 0; k < count; ++k) {
    Search& s = search[k];
    ids[k] = TT_NONE;
    for (;;) {
      const std::uint32_t* const slots = t.lines + std::size_t{s.line} * TT_LINE_SLOTS;
      for (; s.candidates != 0; s.candidates &= s.candidates - 1) {
        const std::uint32_t id = slots[__builtin_ctz(s.candidates)] & TT_SLOT_IDS;
        if ((t.keys[2 * std::size_t{id}] == s.key.low && t.keys[2 * std::size_t{id} + 1] == s.key.high) ||
            TOKTIER_FAULT(piece_mark)) {
          ids[k] = id;
          break;
        }
      }
      if (ids[k] != TT_NONE || s.ends || TOKTIER_FAULT(piece_overflow)) break;
      s.line = s.line + 1 == t.n_lines ? 0 : s.line + 1;
      s.candidates = marked(t.lines + std::size_t{s.line} * TT_LINE_SLOTS, s.mark, s.ends);
    }
  }
}

}  // namespace
}  // namespace TOKTIER_LANE_NAMESPACE

const WordLanes TOKTIER_LANE_TABLE(word_lanes) = {
    TOKTIER_LANE_NAMESPACE::line_of,
    TOKTIER_LANE_NAMESPACE::list_keys,
    TOKTIER_LANE_NAMESPACE::look_up,
    TOKTIER_LANE_NAMESPACE::emit_known,
    TOKTIER_LANE_NAMESPACE::emit,
    TOKTIER_LANE_NAMESPACE::find_entries,
};

}  // namespace toktier
