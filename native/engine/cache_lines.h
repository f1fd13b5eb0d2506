// What the caches of words have in common: lines of zeroed memory, and the count that says whether more of them would pay. What
// is in a line, where an entry goes and how many lines are next: the caches' own (word_cache.h, long_words.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace toktier {

struct Unmap {
  std::size_t size = 0;
  void operator()(void* memory) const;
};

// `size` zeroed bytes, in huge pages where they are to be had and one is filled, and `behind` more, which would take a huge page
// for themselves. `populated`: all of `size` is there at once.
std::unique_ptr<void, Unmap> map_lines(std::size_t size, std::size_t behind, bool populated);

// A power of two of lines, each with an array `entry`; empty entries are all zero. One more line lies behind the last one.
template <typename Line>
class CacheLines {
 public:
  CacheLines() = default;  // none
  CacheLines(std::uint32_t count, bool populated)
      : memory_(map_lines(std::size_t{count} * sizeof(Line), sizeof(Line), populated)), mask_(count - 1) {}

  bool empty() const { return memory_ == nullptr; }
  Line* data() const { return static_cast<Line*>(memory_.get()); }
  Line& operator[](std::uint32_t i) const { return data()[i]; }
  std::uint32_t mask() const { return mask_; }
  std::uint32_t count() const { return mask_ + 1; }

 private:
  std::unique_ptr<void, Unmap> memory_;
  std::uint32_t mask_ = 0;
};

// Since the size was last considered.
struct CacheTraffic {
  std::uint64_t looked_up = 0, missed = 0, evicted = 0;
  // Whether one look-up in 64 missed; counts anew from here.
  bool pays_growth() {
    const bool pays = missed * 64 > looked_up;
    *this = {};
    return pays;
  }
};

}  // namespace toktier
