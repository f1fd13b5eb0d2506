// The key of a short word, the value it is looked up for, and the line of memory that holds two of both: plain data that the
// lane sources and the rest share. A word is a piece of at most 15 bytes, or a part of one between cuts that no merge crosses.
#pragma once
#include <bit>
#include <cstdint>

#include "shared/target.h"

namespace toktier {

static_assert(std::endian::native == std::endian::little, "keys are read as little-endian words");

constexpr std::uint32_t longest_word = 15;
constexpr std::uint32_t inline_ids = 3;

// The bytes of the word, zero-filled, and in the last byte its length, plus 0x80 for a part that must not be taken for a
// piece. The word without bytes is all zero. A span too long for a key has all bits set, which no word has.
struct WordKey {
  std::uint64_t low, high;
};

// Up to three ids, or the place of more.
struct WordValue {
  std::uint32_t ids[inline_ids];
  std::uint32_t count;
};

// ids[2] of a value with more than inline_ids: whose memory holds them.
enum WordPlace : std::uint32_t {
  word_in_ring = 0,    // the cache's; ids[0] and ids[1]: how many ids it had been given before these, as 64 bits
  word_in_window = 1,  // the running window's; ids[0]: index
};

struct WordEntry {  // all zero: empty, which is also right for the word without bytes
  WordKey key;
  WordValue value;
};
struct alignas(64) WordLine {
  WordEntry entry[2];
};
static_assert(sizeof(WordEntry) == 32 && sizeof(WordLine) == 64);

// What a span is: an offset of rows in the tables of keys, to which the length is added, or 16 for what is longer.
enum WordKind : std::uint8_t { word_piece = 0, word_part = 32, word_dropped = 64 };
constexpr std::uint32_t word_rows = 96;

// By row: which bytes of a load belong to the key, and the bits that are put on top.
struct WordRows {
  alignas(64) WordKey keep[word_rows];
  alignas(64) WordKey top[word_rows];
  constexpr WordRows() : keep{}, top{} {
    for (std::uint32_t part = 0; part < 2; ++part) {
      for (std::uint32_t n = 0; n <= longest_word; ++n) {
        const std::uint32_t row = part * word_part + n;
        for (std::uint32_t byte = 0; byte < n; ++byte)
          (byte < 8 ? keep[row].low : keep[row].high) |= std::uint64_t{0xFF} << (byte % 8 * 8);
        top[row].high = std::uint64_t{n == 0 ? 0 : n + part * 0x80} << 56;
      }
      top[part * word_part + longest_word + 1] = {~std::uint64_t{0}, ~std::uint64_t{0}};
    }
  }
};

// Spans of a text, and where what is found of them goes. Span k is text[bound[k], bound[k + 1]).
struct WordWindow {
  const std::uint8_t* text;
  std::uint32_t size;         // of the text: bytes behind it may not be read
  const std::uint32_t* bound;
  const std::uint8_t* kind;   // of each span, or null: all of them are pieces
  std::uint32_t count;
  const WordLine* lines;      // [mask + 1], and one more, whose first key is that of spans too long
  std::uint32_t mask;
  WordValue* value;           // [count], out: of what was found
  std::uint32_t* missed;      // [count], out: spans that are not in `lines`
  std::uint32_t* longer;      // [count], out: spans without a key
  std::uint32_t missed_count, longer_count;
};

}  // namespace toktier
