// Ids of short pieces seen lately: a bounded, two-way table of one context. Keys are compared whole, so that what it holds
// never affects what comes out; its size is fixed, so that memory does not grow with traffic.
#pragma once
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "shared/target.h"

namespace toktier {

static_assert(std::endian::native == std::endian::little, "programs are little-endian tables read in place");

constexpr std::uint32_t cached_piece = 15;  // longest piece in bytes; the 16th byte of a key holds its length
constexpr std::uint32_t cached_ids = 4;

struct PieceKey {
  std::uint64_t low, high;

  // `part`: a part of a piece may not be looked up as a whole one, nor the other way round.
  PieceKey(const std::uint8_t* p, std::uint32_t n, bool part) {
    if (n >= 8) {
      std::memcpy(&low, p, 8);
      std::memcpy(&high, p + n - 8, 8);
      high = n == 8 ? 0 : high >> (8 * (16 - n));
    } else {
      high = 0;
      if (n >= 4) {
        std::uint32_t first, last;
        std::memcpy(&first, p, 4);
        std::memcpy(&last, p + n - 4, 4);
        low = first | std::uint64_t{last} << (8 * (n - 4));
      } else {
        low = p[0] | std::uint64_t{p[n / 2]} << (8 * (n / 2)) | std::uint64_t{p[n - 1]} << (8 * (n - 1));
      }
    }
    high |= std::uint64_t{n | (part ? 0x80u : 0u)} << 56;
  }
};

class PieceCache {
 public:
  struct Entry {
    std::uint64_t low, high;  // high 0: empty, because the length of a key is not 0
    std::uint32_t ids[cached_ids];  // unused: TT_NONE
  };
  static_assert(sizeof(Entry) == 32);
  static constexpr std::uint32_t sets = 1u << 14;  // of two entries: 1 MiB

  PieceCache() {
    // calloc: pages of the table are touched when they are used, so that a new context costs nothing.
    memory_ = std::calloc(sets * 2 + 2, sizeof(Entry));
    if (memory_ == nullptr) throw std::bad_alloc();
    table_ = reinterpret_cast<Entry*>((reinterpret_cast<std::uintptr_t>(memory_) + 63) & ~std::uintptr_t{63});
  }
  ~PieceCache() { std::free(memory_); }
  PieceCache(const PieceCache&) = delete;
  PieceCache& operator=(const PieceCache&) = delete;

  const Entry* find(const PieceKey& key) const {
    const Entry* e = table_ + set_of(key);
    if (e[0].low == key.low && e[0].high == key.high) return e;
    if (e[1].low == key.low && e[1].high == key.high) return e + 1;
    return nullptr;
  }
  void insert(const PieceKey& key, const std::uint32_t* ids, std::uint32_t count) {
    Entry* e = table_ + set_of(key);
    e[1] = e[0];
    e[0].low = key.low;
    e[0].high = key.high;
    for (std::uint32_t i = 0; i < cached_ids; ++i) e[0].ids[i] = i < count ? ids[i] : TT_NONE;
  }

 private:
  static std::size_t set_of(const PieceKey& key) {
    std::uint64_t h = (key.low ^ key.high * 0x9E3779B97F4A7C15ull) * 0xD6E8FEB86659FD93ull;
    h ^= h >> 32;
    return (h * 0x9E3779B97F4A7C15ull >> 50) * 2;
  }
  void* memory_;
  Entry* table_;
};
static_assert(PieceCache::sets == 1u << (64 - 50));

}  // namespace toktier
