// About how often keys were asked for of late: a count-min sketch of 4-bit counters, halved when as many were counted as make old
// counts worthless (the TinyLFU of Einziger, Friedman and Manes). Keys are digests already, so that their bytes are the hashes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cache/sha256.h"

namespace toktier::cache {

class FrequencySketch {
 public:
  // `words`: of 16 counters each; a power of two.
  explicit FrequencySketch(std::size_t words) : words_(words), mask_(words - 1) {}

  void add(const Digest& key) {
    bool grew = false;
    for (int row = 0; row < 4; ++row) {
      std::uint64_t& word = words_[index(key, row)];
      const int shift = slot(key, row);
      if ((word >> shift & 15) == 15) continue;
      word += std::uint64_t(1) << shift;
      grew = true;
    }
    if (grew && ++added_ >= words_.size() * 16 * 10) age();
  }

  unsigned count(const Digest& key) const {
    unsigned least = 15;
    for (int row = 0; row < 4; ++row)
      least = std::min(least, unsigned(words_[index(key, row)] >> slot(key, row) & 15));
    return least;
  }

  std::size_t bytes() const { return words_.size() * sizeof words_[0]; }

 private:
  static std::uint64_t part(const Digest& key, int row) {
    std::uint64_t value;
    std::memcpy(&value, key.data() + 8 * row, sizeof value);
    return value;
  }
  std::size_t index(const Digest& key, int row) const { return std::size_t(part(key, row) >> 8) & mask_; }
  // Four of the sixteen counters of a word belong to each row.
  static int slot(const Digest& key, int row) { return row * 16 + int(part(key, row) & 3) * 4; }
  void age() {
    for (std::uint64_t& word : words_) word = word >> 1 & 0x7777777777777777ull;
    added_ /= 2;
  }

  std::vector<std::uint64_t> words_;
  std::size_t mask_;
  std::uint64_t added_ = 0;
};

}  // namespace toktier::cache
