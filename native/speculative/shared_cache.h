// What finished requests leave for others to copy from: scopes by their keys, at most so many, the least recently used one
// dropped whole. A scope is created by the first document that is inserted under its key, and reached by that key alone: keys are
// compared byte by byte. What a scope does is scope.h. Not here: what a key is made of, Python, the history of a request.
//
// Any number of threads may call anything. Proposals wait for no insert; inserts into one scope follow each other. Who works on a
// scope that is dropped meanwhile ends on what was, and the memory goes when the last of them is done.
//
// fork: a child has all scopes as they stood between two inserts, copied on write, and shares nothing after. The fork waits for
// the inserts that are under way.
#pragma once
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "speculative/geometry.h"
#include "speculative/scope.h"

namespace toktier::speculative {

// Since the cache was made; `stored` and `held` of the scopes that are there.
struct CacheStats {
  std::uint64_t scopes, bytes, stored, held, dropped;
  std::uint64_t inserts, inserted_tokens;  // documents longer than key_len, and their tokens
  std::uint64_t proposals, copies, proposed_tokens;
};

class SharedCache {
 public:
  explicit SharedCache(const Geometry& geometry);
  ~SharedCache();
  SharedCache(const SharedCache&) = delete;
  SharedCache& operator=(const SharedCache&) = delete;

  const Geometry& geometry() const { return geometry_; }

  // Ring tokens that were written. A document of key_len tokens or fewer changes nothing. std::bad_alloc, where there is no
  // memory for a new scope: nothing was changed then. No token is kMarker.
  std::size_t insert(std::string_view key, std::span<const std::uint32_t> tokens);
  // As Scope::propose for the last key_len tokens of a history; null, where it is shorter. Counts as a use of the scope.
  std::size_t propose(std::string_view key, const std::uint32_t* last, std::uint32_t* out, std::size_t room);

  bool contains(std::string_view key) const;           // these two are no use of it
  std::uint64_t stored(std::string_view key) const;  // ring tokens ever written to this scope; 0 where there is none
  bool remove(std::string_view key);                   // whether there was one
  void clear();
  CacheStats stats() const;

 private:
  friend class ForkGuard;
  struct Named {
    std::string key;
    std::shared_ptr<Scope> scope;
  };
  using Order = std::list<Named>;  // most recently used first

  std::shared_ptr<Scope> used(std::string_view key);
  std::shared_ptr<Scope> used_or_new(std::string_view key);
  void take_out(Order::iterator named, Order& out);

  const Geometry geometry_;
  mutable std::mutex mutex_;  // of the next three; held for moments, and never while a scope's `writing` is waited for
  Order order_;
  std::unordered_map<std::string_view, Order::iterator> by_key_;  // keys stand in order_
  std::uint64_t dropped_ = 0;
  std::atomic<std::uint64_t> inserts_ = 0, inserted_tokens_ = 0, proposals_ = 0, copies_ = 0, proposed_tokens_ = 0;
};

}  // namespace toktier::speculative
