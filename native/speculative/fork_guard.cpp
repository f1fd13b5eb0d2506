// The list of caches and the handlers. Order of locks: the list, each cache, each of its scopes; nobody waits for an earlier one
// while it has a later one.
#include "speculative/fork_guard.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

#include "speculative/shared_cache.h"

namespace toktier::speculative {

namespace {

// Never destroyed: a cache may outlive the statics of the process.
struct Caches {
  std::mutex mutex;
  std::vector<SharedCache*> all;
};
Caches& caches() {
  static Caches* const only = new Caches;
  return *only;
}

}  // namespace

void ForkGuard::prepare() {
  caches().mutex.lock();
  for (SharedCache* cache : caches().all) {
    cache->mutex_.lock();
    for (auto& named : cache->order_) named.scope->writing.lock();
  }
}

void ForkGuard::release() {
  for (SharedCache* cache : caches().all) {
    for (auto& named : cache->order_) named.scope->writing.unlock();
    cache->mutex_.unlock();
  }
  caches().mutex.unlock();
}

void ForkGuard::add(SharedCache* cache) {
  static const int registered = pthread_atfork(prepare, release, release);
  if (registered != 0) throw std::bad_alloc();
  const std::lock_guard held(caches().mutex);
  caches().all.push_back(cache);
}

void ForkGuard::remove(SharedCache* cache) {
  const std::lock_guard held(caches().mutex);
  std::erase(caches().all, cache);
}

}  // namespace toktier::speculative
