// Look-up in a request's own history (prompt and what was generated): the continuation of the latest earlier occurrence of its
// last key_len tokens. Exact: every n-gram that has a following token is indexed, whatever the length. A token costs constant
// time and about 30 bytes, and so does taking one back. Not here: other requests' tokens (shared_cache.h), how many tokens are
// worth proposing (copy_window.h), locks: one thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "speculative/ngram_hash.h"

namespace toktier::speculative {

inline constexpr std::size_t kLongestHistory = 0x7FFFFFFF;  // tokens: positions are kept in 32 bits

class PromptLookup {
 public:
  explicit PromptLookup(std::size_t key_len);

  std::size_t key_len() const { return key_len_; }
  std::span<const std::uint32_t> history() const { return tokens_; }
  std::size_t memory() const;  // bytes

  // All or nothing: std::bad_alloc, or std::length_error beyond kLongestHistory, before anything changes.
  void append(std::span<const std::uint32_t> tokens);
  // Back to the first `length` tokens; `length` is at most what there are. What is proposed then is what would have been.
  void truncate(std::size_t length);
  // A slice of history(), at most `room` tokens; empty: none.
  std::span<const std::uint32_t> propose(std::size_t room) const;

 private:
  // 32 bits of the hash above, position of the following token below; 0: empty; position 0: taken back.
  using Slot = std::uint64_t;

  void reserve(std::size_t more);
  Slot* find(std::uint32_t hash, const std::uint32_t* key);
  void index_last();

  const std::size_t key_len_;
  const NgramHash hash_;
  std::uint64_t rolled_ = 0;             // of the last key_len tokens, once there are as many
  std::vector<std::uint32_t> tokens_;
  std::vector<std::uint32_t> earlier_;   // of each position in a slot, the one that it replaced there, or 0
  std::vector<Slot> slots_;              // a power of two; linear probing; at most three quarters are not empty
  std::size_t taken_ = 0;                // slots that are not empty
};

}  // namespace toktier::speculative
