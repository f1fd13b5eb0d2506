// The hash of n tokens, rolled along a text in constant time a token. It decides where an n-gram is looked for and nothing else:
// whoever finds compares tokens. Where a table forgets, the base must be the same in every process, so that the same calls give
// the same proposals; where it grows, a secret one keeps a text from being made whose n-grams all meet in one place.
#pragma once
#include <cstddef>
#include <cstdint>

namespace toktier::speculative {

class NgramHash {
 public:
  static constexpr std::uint64_t kPublicBase = 0x9E3779B97F4A7C15u;

  NgramHash(std::size_t n, std::uint64_t base) : n_(n), base_(base | 1) {
    for (std::uint64_t square = base_; n != 0; n >>= 1, square *= square)  // n is what a caller gave, and may be anything
      if (n & 1) outgoing_ *= square;
  }

  // Polynomial of the n tokens at `tokens`; at most 2**64 values, to be mixed before use.
  std::uint64_t of(const std::uint32_t* tokens) const {
    std::uint64_t h = 0;
    for (std::size_t i = 0; i < n_; ++i) h = h * base_ + tokens[i];
    return h;
  }

  // One token further: `first` leaves, `next` enters.
  std::uint64_t roll(std::uint64_t h, std::uint32_t first, std::uint32_t next) const {
    return h * base_ + next - first * outgoing_;
  }

  // Every bit of the result depends on every bit of h.
  static std::uint64_t mix(std::uint64_t h) {
    h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93u;
    h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93u;
    return h ^ (h >> 32);
  }

 private:
  std::size_t n_;
  std::uint64_t base_;          // odd: no token is lost from the polynomial
  std::uint64_t outgoing_ = 1;  // base_ to the power of n
};

}  // namespace toktier::speculative
