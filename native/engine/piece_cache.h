// Ids of short pieces seen lately: bounded, two-way tables of one context. Keys are compared whole, so that what they hold
// never affects what comes out; their size is fixed, so that memory does not grow with traffic.
#pragma once
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "faults.h"
#include "shared/target.h"

namespace toktier {

static_assert(std::endian::native == std::endian::little, "programs are little-endian tables read in place");

// The bytes of a piece, zero-filled, and in the last byte its length: at most Words * 8 - 1 bytes.
template <unsigned Words>
struct PieceKey {
  static constexpr std::uint32_t longest = Words * 8 - 1;
  std::uint64_t word[Words];

  PieceKey() = default;
  // `readable`: bytes that may be read from p on. `part`: a part of a piece is not looked up as a whole one, nor the other
  // way round.
  PieceKey(const std::uint8_t* p, std::uint32_t n, std::uint64_t readable, bool part) { set(p, n, readable, part); }
  // In place: a key copied right after its words were stored would wait for the stores.
  void set(const std::uint8_t* p, std::uint32_t n, std::uint64_t readable, bool part) {
    if (readable >= Words * 8) {  // load whole words and blank out: no branch on the length
      for (unsigned i = 0; i < Words; ++i) {
        std::uint64_t bytes;
        std::memcpy(&bytes, p + i * 8, 8);
        word[i] = bytes & keep.of_length[n][i];
      }
    } else {
      std::memset(word, 0, sizeof word);
      std::memcpy(word, p, n);
    }
    if (TOKTIER_FAULT(cache_key) && Words == 4) word[3] = 0;
    word[Words - 1] |= std::uint64_t{n | (part ? 0x80u : 0u)} << 56;
  }
  bool operator==(const PieceKey& other) const {
    std::uint64_t difference = 0;
    for (unsigned i = 0; i < Words; ++i) difference |= word[i] ^ other.word[i];
    return difference == 0;
  }
  std::uint64_t hash() const {
    std::uint64_t h = word[0] * 0x9E3779B97F4A7C15ull;
    for (unsigned i = 1; i < Words; ++i) h = (h ^ h >> 32 ^ word[i]) * 0xD6E8FEB86659FD93ull;
    return (h ^ h >> 32) * 0x9E3779B97F4A7C15ull;
  }

 private:
  struct Masks {
    std::uint64_t of_length[longest + 1][Words];
    constexpr Masks() : of_length{} {
      for (std::uint32_t n = 0; n <= longest; ++n)
        for (std::uint32_t byte = 0; byte < n; ++byte) of_length[n][byte / 8] |= std::uint64_t{0xFF} << (byte % 8 * 8);
    }
  };
  static constexpr Masks keep{};
};

template <unsigned Words, unsigned Ids, unsigned SetBits>
class PieceCache {
 public:
  using Key = PieceKey<Words>;
  static constexpr std::uint32_t most_ids = Ids;
  struct Entry {
    Key key;                 // all zero: empty, because the length of a key is not 0
    std::uint32_t ids[Ids];  // unused: TT_NONE
    std::uint32_t count() const {
      std::uint32_t n = 1;
      for (unsigned i = 1; i < Ids; ++i) n += ids[i] != TT_NONE;
      return n;
    }
  };

  PieceCache() {
    // calloc: pages are touched when they are used, so that a new context costs next to nothing.
    memory_ = std::calloc((std::size_t{2} << SetBits) + 2, sizeof(Entry));
    if (memory_ == nullptr) throw std::bad_alloc();
    table_ = reinterpret_cast<Entry*>((reinterpret_cast<std::uintptr_t>(memory_) + 63) & ~std::uintptr_t{63});
  }
  ~PieceCache() { std::free(memory_); }
  PieceCache(const PieceCache&) = delete;
  PieceCache& operator=(const PieceCache&) = delete;

  // Two steps, so that many sets can be under way: which set, then the entry in it.
  const Entry* prefetch(const Key& key) const {
    const Entry* set = set_of(key);
    __builtin_prefetch(set);
    return set;
  }
  const Entry* find(const Key& key) const { return find(set_of(key), key); }
  static const Entry* find(const Entry* e, const Key& key) {
    if (e[0].key == key) return e;
    if (e[1].key == key) return e + 1;
    return nullptr;
  }
  void insert(const Key& key, const std::uint32_t* ids, std::uint32_t count) {
    Entry* e = set_of(key);
    e[1] = e[0];
    e[0].key = key;
    const std::uint32_t kept = TOKTIER_FAULT(cache_full) && count == Ids ? Ids - 1 : count;
    for (std::uint32_t i = 0; i < Ids; ++i) e[0].ids[i] = i < kept ? ids[i] : TT_NONE;
  }

 private:
  Entry* set_of(const Key& key) const { return table_ + (key.hash() >> (64 - SetBits)) * 2; }
  void* memory_;
  Entry* table_;
};

using ShortCache = PieceCache<2, 4, 13>;  // pieces of up to 15 bytes: 512 KiB, a set is one cache line
using LongCache = PieceCache<4, 8, 11>;   // up to 31 bytes: 256 KiB
using WideCache = PieceCache<8, 16, 10>;  // up to 63 bytes, rules of dashes and the like: 256 KiB
static_assert(sizeof(ShortCache::Entry) == 32 && sizeof(LongCache::Entry) == 64 && sizeof(WideCache::Entry) == 128);

}  // namespace toktier
