// One scope of the shared cache: a ring of tokens and the table of its n-grams, of fixed size, in one piece of memory.
//
// One thread at a time inserts, holding `writing`; any number propose meanwhile without a lock and never wait. Every proposal is
// a slice of tokens that were inserted, preceded there by the n-gram that was asked for: both are compared and copied from the
// ring, then the ring says whether they were held all the while.
#pragma once
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "speculative/anonymous_memory.h"
#include "speculative/geometry.h"
#include "speculative/ngram_hash.h"
#include "speculative/slot_table.h"
#include "speculative/token_ring.h"

namespace toktier::speculative {

class Scope {
 public:
  explicit Scope(const Geometry& geometry);  // takes all its memory at once, or throws std::bad_alloc

  std::mutex writing;

  // What of `tokens` is new is stored: a stretch whose tokens are all predicted already costs nothing. Only the last
  // ring - 1 tokens are looked at; key_len or fewer are nothing. No token is kMarker. Gives the ring tokens that were written.
  std::size_t insert(std::span<const std::uint32_t> tokens);

  // What followed the latest occurrence of `key` (key_len tokens): its number of tokens, at most `room`, which stand in `out`;
  // 0: no occurrence. It ends where the stored stretch does.
  std::size_t propose(const std::uint32_t* key, std::uint32_t* out, std::size_t room) const;

  std::uint64_t stored() const { return ring_.next() - 1; }  // ring tokens ever written, markers too
  std::size_t held() const;                                   // of them, those the ring holds

 private:
  class Walk;

  const std::size_t key_len_;
  const AnonymousMemory memory_;
  const NgramHash hash_;
  SlotTable table_;
  TokenRing ring_;
};

}  // namespace toktier::speculative
