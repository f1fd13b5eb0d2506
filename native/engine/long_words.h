// Ids of words seen lately that are too long for a key of 16 bytes. Up to 31 bytes and 8 ids they are remembered like short ones,
// in lines that hold text and ids; others by a hash, with text and ids in a ring of bytes. Texts are compared whole. Of one
// context.
#pragma once
#include <cstddef>
#include <cstdint>

#include "piece_cache.h"

namespace toktier {

class LongWords {
 public:
  LongWords() = default;
  ~LongWords();
  LongWords(const LongWords&) = delete;
  LongWords& operator=(const LongWords&) = delete;

  static constexpr std::uint32_t longest = 4096;  // bytes; beyond, nothing is remembered

  struct Found {
    const std::uint32_t* ids;  // until the next remember(); null: not known
    std::uint32_t count;
  };
  // `readable`: bytes that may be read from `text` on.
  void prefetch(const std::uint8_t* text, std::uint32_t size, std::uint64_t readable, bool part);
  Found find(const std::uint8_t* text, std::uint32_t size, std::uint64_t readable, bool part) const;
  void remember(const std::uint8_t* text, std::uint32_t size, std::uint64_t readable, bool part, const std::uint32_t* ids,
                std::uint32_t count);
  std::size_t bytes() const;

 private:
  using MiddleCache = PieceCache<4, 8, 13>;  // 1 MiB
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

  MiddleCache middle_;
  Place* places_ = nullptr;
  std::uint8_t* ring_ = nullptr;
  std::uint64_t written_ = 0;
};

}  // namespace toktier
