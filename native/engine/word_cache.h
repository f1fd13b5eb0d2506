// Ids of short words seen lately, of one context. It begins with what a short text needs and grows in two steps, the second only
// where it pays, up to a hard cap. What it holds never affects what comes out, since keys are compared whole and what is gone is
// made again.
#pragma once
#include <cstddef>

#include "cache_lines.h"
#include "lanes/word_lanes.h"
#include "scratch.h"

namespace toktier {

class WordCache {
 public:
  static constexpr std::uint32_t small_lines = 1u << 9;                          // 32 KiB
  static constexpr std::uint32_t first_lines = 1u << 15, most_lines = 1u << 17;  // 2 MiB, 8 MiB

  // `fixed`: lines that it has whatever comes, a power of two; 0: they grow.
  WordCache(const WordLanes& lanes, std::uint32_t fixed);
  ~WordCache();
  WordCache(const WordCache&) = delete;
  WordCache& operator=(const WordCache&) = delete;

  const WordLine* lines() const { return lines_.data(); }
  std::uint32_t mask() const { return lines_.mask(); }

  // What is remembered of the key, or null. Looks where the loops of WordLanes look, and next to it, where words go that find no
  // place; those change places with one that did. `line`: line_of the key.
  const WordValue* find(const WordKey& key, std::uint32_t line);
  void insert(const WordKey& key, const std::uint32_t* ids, std::uint32_t count) {
    insert(key, lanes_.line_of(key, lines_.mask()), ids, count);
  }
  void insert(const WordKey& key, std::uint32_t line, const std::uint32_t* ids, std::uint32_t count);

  // Ids of a value that is in the ring, or null when they were written over.
  const std::uint32_t* in_ring(const WordValue& value) const;

  // Between windows: grows when it is crowded and many of the spans that were looked up were missed.
  void consider_growth(std::uint32_t looked_up, std::uint32_t missed);

 private:
  static constexpr std::uint32_t ring_size = 1u << 17;  // ids

  void insert(const WordKey& key, std::uint32_t line, const WordValue& value);
  WordEntry* home(const WordKey& key) const { return lines_[lanes_.line_of(key, lines_.mask())].entry; }
  static WordEntry* beside(WordEntry* home) {
    return reinterpret_cast<WordEntry*>(reinterpret_cast<std::uintptr_t>(home) ^ sizeof(WordLine));
  }

  const WordLanes& lanes_;
  const std::uint32_t most_;
  CacheLines<WordLine> lines_;
  CacheTraffic traffic_;
  std::uint32_t* ring_ = nullptr;
  std::uint64_t given_ = 0;  // ids written to the ring
};

}  // namespace toktier
