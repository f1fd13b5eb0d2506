// Ids of words seen lately that are too long for a key of 16 bytes. Up to 31 bytes and 7 ids they are remembered like short ones,
// in lines that hold text and ids; others by a hash, with text and ids in a ring of bytes. Texts are compared whole. Of one
// context; nothing is allocated before there is something to remember.
#pragma once
#include <cstddef>
#include <cstdint>

#include "lanes/long_lanes.h"
#include "scratch.h"

namespace toktier {

class LongWords {
 public:
  // Lines to begin with, and at most: powers of two, two at least.
  LongWords(const LongLanes& lanes, std::uint32_t first, std::uint32_t most) : lanes_(lanes), first_(first), most_(most) {}
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
  std::size_t bytes() const;

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
  void allocate(std::uint32_t lines);
  void insert(const LongEntry& entry);
  LongEntry* find_entry(const LongKey& key);

  const LongLanes& lanes_;
  const std::uint32_t first_, most_;
  void* memory_ = nullptr;
  std::size_t mapped_ = 0;
  LongLine* lines_ = nullptr;
  std::uint32_t mask_ = 0;
  std::uint64_t looked_up_ = 0, missed_ = 0, evicted_ = 0;  // since the size was last considered
  Place* places_ = nullptr;
  std::uint8_t* ring_ = nullptr;
  std::uint64_t written_ = 0;
};

}  // namespace toktier
