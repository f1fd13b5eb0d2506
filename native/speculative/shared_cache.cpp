// Scopes by key and by use.
#include "speculative/shared_cache.h"

#include <iterator>
#include <utility>

#include "speculative/fork_guard.h"

namespace toktier::speculative {

namespace {

void add(std::atomic<std::uint64_t>& counter, std::uint64_t n) { counter.fetch_add(n, std::memory_order_relaxed); }

}  // namespace

SharedCache::SharedCache(const Geometry& geometry) : geometry_(geometry) { ForkGuard::add(this); }

SharedCache::~SharedCache() { ForkGuard::remove(this); }

// Moves a scope to `out`, to be destroyed by the caller without the lock: giving memory back takes milliseconds.
void SharedCache::take_out(Order::iterator named, Order& out) {
  by_key_.erase(named->key);
  out.splice(out.begin(), order_, named);
}

// The scope of a key as the most recently used one, or null.
std::shared_ptr<Scope> SharedCache::used(std::string_view key) {
  const std::lock_guard held(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  order_.splice(order_.begin(), order_, found->second);
  return found->second->scope;
}

std::shared_ptr<Scope> SharedCache::used_or_new(std::string_view key) {
  Order gone, made;
  const std::lock_guard held(mutex_);
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    order_.splice(order_.begin(), order_, found->second);
    return order_.front().scope;
  }
  // All that can fail comes before anything changes.
  made.push_back({std::string(key), std::make_shared<Scope>(geometry_)});
  by_key_.emplace(made.front().key, made.begin());
  order_.splice(order_.begin(), made);  // the iterator in by_key_ goes along
  if (order_.size() > geometry_.max_scopes) {
    take_out(std::prev(order_.end()), gone);
    ++dropped_;
  }
  return order_.front().scope;
}

std::size_t SharedCache::insert(std::string_view key, std::span<const std::uint32_t> tokens) {
  if (tokens.size() <= geometry_.key_len) return 0;
  const std::shared_ptr<Scope> scope = used_or_new(key);
  std::size_t written;
  {
    const std::lock_guard held(scope->writing);
    written = scope->insert(tokens);
  }
  add(inserts_, 1);
  add(inserted_tokens_, tokens.size());
  return written;
}

std::size_t SharedCache::propose(std::string_view key, const std::uint32_t* last, std::uint32_t* out, std::size_t room) {
  add(proposals_, 1);
  const std::shared_ptr<Scope> scope = used(key);
  if (scope == nullptr || last == nullptr || room == 0) return 0;
  const std::size_t n = scope->propose(last, out, room);
  if (n > 0) add(copies_, 1);
  if (n > 0) add(proposed_tokens_, n);
  return n;
}

bool SharedCache::contains(std::string_view key) const {
  const std::lock_guard held(mutex_);
  return by_key_.find(key) != by_key_.end();
}

std::uint64_t SharedCache::stored(std::string_view key) const {
  const std::lock_guard held(mutex_);
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? 0 : found->second->scope->stored();
}

bool SharedCache::remove(std::string_view key) {
  Order gone;
  const std::lock_guard held(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return false;
  take_out(found->second, gone);
  return true;
}

void SharedCache::clear() {
  Order gone;
  const std::lock_guard held(mutex_);
  by_key_.clear();
  gone.swap(order_);
}

CacheStats SharedCache::stats() const {
  CacheStats s{};
  const std::lock_guard held(mutex_);
  s.scopes = order_.size();
  s.bytes = order_.size() * geometry_.bytes();
  for (const Named& named : order_) {
    s.stored += named.scope->stored();
    s.held += named.scope->held();
  }
  s.dropped = dropped_;
  s.inserts = inserts_;
  s.inserted_tokens = inserted_tokens_;
  s.proposals = proposals_;
  s.copies = copies_;
  s.proposed_tokens = proposed_tokens_;
  return s;
}

}  // namespace toktier::speculative
