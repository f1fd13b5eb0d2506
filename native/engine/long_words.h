// Ids of words seen lately that are too long for a key of 16 bytes. Up to 31 bytes and 7 ids they are remembered like short ones,
// in lines that hold text and ids; others by a hash, with text and ids in a ring of bytes. Texts are compared whole. Of one
// context; nothing is allocated before there is something to remember.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cache_lines.h"
#include "lanes/long_lanes.h"
#include "scratch.h"

namespace toktier {

class LongWords {
 public:
  static constexpr std::uint32_t first_lines = 1u << 13, most_lines = 1u << 15;  // 1 MiB, 4 MiB

  // `fixed`: lines that it has whatever comes, a power of two, two at least; 0: they grow.
  LongWords(const LongLanes& lanes, std::uint32_t fixed) : lanes_(lanes), fixed_(fixed) {}
  ~LongWords();
  LongWords(const LongWords&) = delete;
  LongWords& operator=(const LongWords&) = delete;

  static constexpr std::uint32_t longest = 4096;  // bytes; beyond, nothing is remembered

  struct Found {
    const std::uint32_t* ids;  // until the next remember(); null: not known
    std::uint32_t count;
  };
  // Values of the spans in `longer` that the lines have, with the ids behind them appended; the others stay in the list.
  void look_up(WordWindow& window, Scratch<std::uint32_t>& ids);
  // Of one word, in all that is remembered.
  Found find(const std::uint8_t* text, std::uint32_t size, bool part);
  void remember(const std::uint8_t* text, std::uint32_t size, bool part, const std::uint32_t* ids, std::uint32_t count);
  // Between windows: grows when it is crowded and many of the spans that were looked up were missed.
  void consider_growth();

 private:
  struct Place {
    std::uint64_t hash;
    std::uint64_t at;  // bytes written to the ring before it, plus 1; 0: empty
  };
  struct Head {
    std::uint32_t size, count;  // of the text in bytes, of the ids; the ids and then the text follow
  };
  static constexpr std::uint32_t places = 1u << 13;        // in pairs
  static constexpr std::uint32_t ring_size = 1u << 19;

  static std::uint64_t hash_of(const std::uint8_t* text, std::uint32_t size, bool part);
  void insert(const LongEntry& entry);
  LongEntry* find_entry(const LongKey& key);

  const LongLanes& lanes_;
  const std::uint32_t fixed_;
  CacheLines<LongLine> lines_;
  CacheTraffic traffic_;
  Place* places_ = nullptr;
  std::uint8_t* ring_ = nullptr;
  std::uint64_t written_ = 0;
};

}  // namespace toktier
