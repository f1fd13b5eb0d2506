// The key of a word of 16 to 31 bytes, and the line of memory that holds two of them with their ids: plain data that the lane
// sources and the rest share.
#pragma once
#include <cstring>

#include "faults.h"
#include "word_key.h"

namespace toktier {

constexpr std::uint32_t longest_long_word = 31;
constexpr std::uint32_t most_long_ids = 7;

// The first 16 bytes and the last 16, so that nothing outside the word is read. They overlap by one byte at least: the first of
// the last 16 is known twice, and its place holds the length, plus 0x80 for a part. Never all zero.
struct LongKey {
  std::uint64_t word[4];
};

[[gnu::always_inline]] inline LongKey long_key_of(const std::uint8_t* p, std::uint32_t size, bool part) {
  LongKey key;
  std::memcpy(key.word, p, 16);
  std::memcpy(key.word + 2, p + size - 16, 16);
  key.word[2] = (key.word[2] & ~std::uint64_t{0xFF}) | size | (part ? 0x80 : 0);
  if (TOKTIER_FAULT(cache_key)) key.word[3] = 0;
  return key;
}

struct LongEntry {  // all zero: empty
  LongKey key;
  std::uint32_t ids[most_long_ids];
  std::uint32_t count;
};
struct alignas(128) LongLine {
  LongEntry entry[2];
};
static_assert(sizeof(LongEntry) == 64 && sizeof(LongLine) == 128);

}  // namespace toktier
