// As in word_lanes.cpp: keys and lines of a block first, so that its lines are under way, then the comparisons.
#include "long_lanes.h"

#include "shared/hash.h"

#if defined(__AES__)
#include <immintrin.h>
#endif

namespace toktier {
namespace TOKTIER_LANE_NAMESPACE {
namespace {

constexpr std::uint32_t block = 64;  // lines of a block: 8 KiB

#ifdef __AES__
// In registers: a key that is read right after its words were stored would wait for the stores.
struct Key {
  __m128i first, last;
};
TOKTIER_INLINE Key load(const LongKey& from) {
  const auto* const halves = reinterpret_cast<const __m128i*>(&from);
  return {_mm_loadu_si128(halves), _mm_loadu_si128(halves + 1)};
}
TOKTIER_INLINE void store(LongKey& to, const Key& key) {
  auto* const halves = reinterpret_cast<__m128i*>(&to);
  _mm_storeu_si128(halves, key.first);
  _mm_storeu_si128(halves + 1, key.last);
}
TOKTIER_INLINE Key key_of(const std::uint8_t* p, std::uint32_t size, bool part) {
  if (TOKTIER_FAULT(cache_key)) return load(long_key_of(p, size, part));
  const __m128i last = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + size - 16));
  return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)),
          _mm_insert_epi8(last, static_cast<int>(size | (part ? 0x80u : 0u)), 0)};
}
TOKTIER_INLINE std::uint32_t hash(const Key& key) {
  const __m128i salt = _mm_set_epi64x(0x243F6A8885A308D3, 0x13198A2E03707344);
  // A round mixes four bytes, two mix all sixteen: of the last ones too, which come in with the first round.
  const __m128i mixed = _mm_aesenc_si128(key.first, key.last);
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_aesenc_si128(_mm_aesenc_si128(mixed, salt), salt)));
}
#else
using Key = LongKey;
TOKTIER_INLINE const Key& load(const LongKey& from) { return from; }
TOKTIER_INLINE void store(LongKey& to, const Key& key) { to = key; }
TOKTIER_INLINE Key key_of(const std::uint8_t* p, std::uint32_t size, bool part) { return long_key_of(p, size, part); }
TOKTIER_INLINE std::uint32_t hash(const Key& key) {
  const std::uint64_t first = (key.word[0] * TT_HASH_A ^ key.word[1]) * TT_HASH_B;
  const std::uint64_t last = (key.word[2] * TT_HASH_B ^ key.word[3]) * TT_HASH_A;
  const std::uint64_t h = (first ^ first >> 32) + (last ^ last >> 29);
  return static_cast<std::uint32_t>((h ^ h >> 32) * TT_HASH_A >> 32);
}
#endif

TOKTIER_INLINE bool same(const LongKey& a, const LongKey& b) {
#ifdef __AVX2__
  const __m256i difference = _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(&a)),
                                              _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&b)));
  return _mm256_testz_si256(difference, difference) != 0;
#else
  return ((a.word[0] ^ b.word[0]) | (a.word[1] ^ b.word[1]) | (a.word[2] ^ b.word[2]) | (a.word[3] ^ b.word[3])) == 0;
#endif
}

std::uint32_t line_of(const LongKey& key, std::uint32_t mask) { return hash(load(key)) & mask; }

std::uint32_t look_up(WordWindow& w, const LongLine* lines, std::uint32_t mask, std::uint32_t* __restrict ids, std::uint32_t at) {
  const std::uint8_t* const text = w.text;
  const std::uint32_t* const bound = w.bound;
  const std::uint8_t* const kind = w.kind;
  std::uint32_t* const longer = w.longer;
  WordValue* const value = w.value;
  const std::uint32_t count = w.longer_count;
  std::uint32_t left = 0;  // never more than were read
  alignas(64) LongKey keys[block];
  std::uint32_t spans[block + 1], line[block];
  for (std::uint32_t first = 0; first < count; first += block) {
    const std::uint32_t end = count - first < block ? count : first + block;
    std::uint32_t n = 0;
    for (std::uint32_t i = first; i < end; ++i) {
      const std::uint32_t span = longer[i];
      const bool fits = bound[span + 1] - bound[span] <= longest_long_word;
      spans[n] = span;
      n += fits;
      longer[left] = span;
      left += !fits;
    }
    for (std::uint32_t k = 0; k < n; ++k) {
      const std::uint32_t span = spans[k], begin = bound[span];
      const Key key = key_of(text + begin, bound[span + 1] - begin, kind != nullptr && kind[span] == word_part);
      store(keys[k], key);
      line[k] = hash(key) & mask;
      __builtin_prefetch(&lines[line[k]].entry[0]);
      __builtin_prefetch(&lines[line[k]].entry[1]);
    }
    for (std::uint32_t k = 0; k < n; ++k) {
      const LongLine& l = lines[line[k]];
      const bool second = same(l.entry[1].key, keys[k]), found = same(l.entry[0].key, keys[k]) | second;
      const LongEntry& e = l.entry[second];
      const bool many = e.count > inline_ids;
      std::memcpy(ids + at, e.ids, sizeof e.ids + sizeof e.count);
      value[spans[k]] = {{many ? at : e.ids[0], e.ids[1], many ? std::uint32_t{word_in_window} : e.ids[2]}, e.count};
      at += many & found ? e.count : 0;
      longer[left] = spans[k];
      left += !found;
    }
  }
  w.longer_count = left;
  return at;
}

}  // namespace
}  // namespace TOKTIER_LANE_NAMESPACE

const LongLanes TOKTIER_LANE_TABLE(long_lanes) = {
    TOKTIER_LANE_NAMESPACE::line_of,
    TOKTIER_LANE_NAMESPACE::look_up,
};

}  // namespace toktier
