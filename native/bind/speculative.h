// What the files of the bindings of native/speculative share: the own history of a request as Python holds it.
#pragma once
#include <mutex>

#include "bind/bind.h"
#include "speculative/prompt_lookup.h"

namespace toktier::bind {

// One thread at a time, the lock held; waited for without the GIL.
struct LookupOwner {
  explicit LookupOwner(std::size_t key_len) : lookup(key_len) {}
  speculative::PromptLookup lookup;
  std::mutex mutex;
};

// A lock that another thread may hold for a long work without the GIL: waited for without it.
class Locked {
 public:
  explicit Locked(std::mutex& mutex) : mutex_(mutex) {
    if (mutex_.try_lock()) return;
    const WithoutGil released(true);
    mutex_.lock();
  }
  ~Locked() { mutex_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  std::mutex& mutex_;
};

constexpr Py_ssize_t kReleaseGilFromTokens = 1024;

// The lookup of a `_native.PromptLookup`, or null.
LookupOwner* lookup_of(PyObject* object);

// `tokens` of a caller: a PromptLookup's history, or what take_ids takes. False with an error set.
bool take_tokens(PyObject* object, std::vector<std::uint32_t>& out);
// The last `n` of them, read alone; 1 taken, 0 there are fewer, -1 with an error set.
int take_last_tokens(PyObject* object, std::size_t n, std::uint32_t* out);
// A number of tokens; -1 with ConfigInvalid (below 0, "`name` is ..., expected `least` or more") or TypeError set. What lies from
// 0 to `least` is the caller's to refuse. Beyond Py_ssize_t: its greatest.
Py_ssize_t take_count(PyObject* object, const char* name, std::size_t least = 0);

}  // namespace toktier::bind
