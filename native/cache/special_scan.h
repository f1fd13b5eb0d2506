// Where strings stand in a text, for strings of which none overlaps another or itself: then every occurrence is one, and
// leftmost-longest has nothing to choose. Text without a candidate is passed at the speed of memchr where the strings begin with
// few different bytes. Not here: whether the strings may be searched so (toktier/cache/boundaries.py).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace toktier::cache {

struct Occurrence {
  std::size_t end;      // the byte behind it
  std::uint32_t which;  // of the strings
};

class SpecialScan {
 public:
  explicit SpecialScan(std::vector<std::string> strings);  // none empty, none twice
  const std::vector<std::string>& strings() const { return strings_; }
  // Appends all occurrences, ascending. `out` grows by 1 for the length of a string in the text at the most.
  void run(std::string_view text, std::vector<Occurrence>& out) const;

 private:
  bool match(std::string_view text, std::size_t at, std::vector<Occurrence>& out) const;

  std::vector<std::string> strings_;
  std::vector<std::uint32_t> sorted_;   // indices, by string
  std::vector<char> first_;             // bytes that strings begin with
  bool begins_[256] = {};
  std::vector<std::uint64_t> pairs_;    // bit first * 256 + second: a string begins so, or is `first` alone
};

}  // namespace toktier::cache
