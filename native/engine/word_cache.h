// Ids of short words seen lately, of one context. It begins small and doubles while it earns it, up to a hard cap; what it
// holds never affects what comes out, since keys are compared whole and what is gone is made again.
#pragma once
#include <cstddef>

#include "lanes/word_lanes.h"
#include "scratch.h"

namespace toktier {

class WordCache {
 public:
  static constexpr std::uint32_t first_lines = 1u << 15, most_lines = 1u << 17;  // 2 MiB, 8 MiB

  // Powers of two.
  WordCache(const WordLanes& lanes, std::uint32_t first, std::uint32_t most);
  ~WordCache();
  WordCache(const WordCache&) = delete;
  WordCache& operator=(const WordCache&) = delete;

  const WordLine* lines() const { return lines_; }
  std::uint32_t mask() const { return mask_; }

  // What is remembered of the key, or null. Looks where the loops of WordLanes look, and next to it, where words go that find no
  // place; those change places with one that did. `line`: line_of the key.
  const WordValue* find(const WordKey& key, std::uint32_t line);
  void insert(const WordKey& key, const std::uint32_t* ids, std::uint32_t count) {
    insert(key, lanes_.line_of(key, mask_), ids, count);
  }
  void insert(const WordKey& key, std::uint32_t line, const std::uint32_t* ids, std::uint32_t count);

  // Ids of a value that is in the ring, or null when they were written over.
  const std::uint32_t* in_ring(const WordValue& value) const;

  // Between windows: grows when it is crowded and many of the spans that were looked up were missed.
  void consider_growth(std::uint32_t looked_up, std::uint32_t missed);
  std::size_t bytes() const;

 private:
  static constexpr std::uint32_t ring_size = 1u << 17;  // ids

  void allocate(std::uint32_t lines);
  void insert(const WordKey& key, std::uint32_t line, const WordValue& value);
  WordEntry* home(const WordKey& key) const { return lines_[lanes_.line_of(key, mask_)].entry; }
  static WordEntry* beside(WordEntry* home) {
    return reinterpret_cast<WordEntry*>(reinterpret_cast<std::uintptr_t>(home) ^ sizeof(WordLine));
  }

  const WordLanes& lanes_;
  const std::uint32_t most_;
  void* memory_ = nullptr;
  std::size_t mapped_ = 0;
  WordLine* lines_ = nullptr;
  std::uint32_t mask_ = 0;
  std::uint64_t looked_up_ = 0, missed_ = 0, evicted_ = 0;  // since the size was last considered
  std::uint32_t* ring_ = nullptr;
  std::uint64_t given_ = 0;  // ids written to the ring
};

}  // namespace toktier
