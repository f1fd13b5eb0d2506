// One step of linear probing while a table is built, with a bound. The hash is not keyed (every reader must find the same slots),
// so a file can be made whose keys all meet in one place; looking them up, at every encode, would be quadratic. Such a file is
// refused. Honest keys at half load stay below 100 steps: no real vocabulary comes near the bound.
#pragma once
#include <cstdint>

#include "compile/bpe_tables.h"

namespace toktier::compile {

constexpr std::uint32_t kLongestProbe = 1024;
constexpr const char* kKeysMeet = "a thousand keys meet in one place of a hash table: the file was made to be slow";

class Probe {
 public:
  Probe(std::uint64_t hash, std::uint64_t mask) : at_(hash & mask), mask_(mask) {}
  std::uint64_t at() const { return at_; }
  void next() {
    if (++steps_ > kLongestProbe)
      throw CompileError{kKeysMeet};
    at_ = (at_ + 1) & mask_;
  }

 private:
  std::uint64_t at_, mask_;
  std::uint32_t steps_ = 0;
};

}  // namespace toktier::compile
