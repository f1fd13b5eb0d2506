// shared_lookup_fuzz model|sound OPERATIONS [SEED], shared_lookup_fuzz threads OPERATIONS [THREADS]: the shared cache
// (native/speculative) against plain models. Needs no Python, so that it runs under any sanitizer.
//
//   model    one thread; every result equals that of a model with an unbounded dictionary in place of the slot table, which
//            has room for all: what is stored, what is proposed, which scope is dropped.
//   sound    one thread; tables and rings that are much too small: whatever is proposed was inserted, one token behind the other.
//   threads  the same with all threads in all scopes at once, scopes dropped and removed under each other, and forks.
//
// Documents of a scope are slices of one base text of that scope, so that "was inserted" is a look at how far inserted slices
// reach.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "speculative/shared_cache.h"

using namespace toktier::speculative;
using Tokens = std::vector<std::uint32_t>;

namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : generator_(seed) {}
  std::size_t below(std::size_t n) { return std::size_t(generator_() % n); }

 private:
  std::mt19937_64 generator_;
};

[[noreturn]] void fail(const char* what, std::uint64_t operation) {
  std::fprintf(stderr, "shared_lookup_fuzz: %s, at operation %llu\n", what, static_cast<unsigned long long>(operation));
  std::_Exit(1);
}

void report(const char* mode, std::uint64_t operations, std::uint64_t copies) {
  std::printf("%s: %llu operations, %llu copies\n", mode, static_cast<unsigned long long>(operations),
              static_cast<unsigned long long>(copies));
  if (copies * 100 < operations) fail("nothing was tested, for next to nothing was proposed", operations);
}

// The contract of a scope, with every ring token ever written and a dictionary that forgets nothing.
struct ModelScope {
  std::string key;
  Tokens log{kMarker};  // position 0 is never written
  std::map<Tokens, std::size_t> latest;
};

class Model {
 public:
  explicit Model(const Geometry& geometry) : g_(geometry) {}

  std::size_t insert(const std::string& key, Tokens document) {
    if (document.size() <= g_.key_len) return 0;
    ModelScope& s = touch(key, true)->front();
    if (document.size() > g_.ring - 1) document.erase(document.begin(), document.end() - std::ptrdiff_t(g_.ring - 1));
    const std::size_t before = s.log.size();
    bool open = false;
    int repeats = 0;
    for (std::size_t e = g_.key_len; e < document.size(); ++e) {
      const Tokens gram(document.begin() + std::ptrdiff_t(e - g_.key_len), document.begin() + std::ptrdiff_t(e));
      const std::size_t at = find(s, gram);
      const bool known = at != 0 && s.log[at] == document[e];
      if (!open && known) continue;
      if (!open) s.log.insert(s.log.end(), gram.begin(), gram.end());
      repeats = open && known ? repeats + 1 : 0;
      open = true;
      if (repeats == 32) {
        s.log.push_back(kMarker);
        open = false;
        continue;
      }
      s.latest[gram] = s.log.size();
      s.log.push_back(document[e]);
    }
    if (open) s.log.push_back(kMarker);
    return s.log.size() - before;
  }

  Tokens propose(const std::string& key, const Tokens& history, std::size_t room) {
    const auto scope = touch(key, false);
    if (!scope || history.size() < g_.key_len) return {};
    ModelScope& s = scope->front();
    Tokens out;
    if (std::size_t at = find(s, Tokens(history.end() - std::ptrdiff_t(g_.key_len), history.end())))
      for (; at < s.log.size() && s.log[at] != kMarker && out.size() < room; ++at) out.push_back(s.log[at]);
    return out;
  }

  void remove(const std::string& key) {
    scopes_.remove_if([&](const ModelScope& s) { return s.key == key; });
  }
  std::size_t size() const { return scopes_.size(); }

 private:
  std::size_t find(const ModelScope& s, const Tokens& gram) const {
    const auto found = s.latest.find(gram);
    if (found == s.latest.end()) return 0;
    const bool held = found->second - g_.key_len + g_.ring >= s.log.size();
    return held ? found->second : 0;
  }
  std::list<ModelScope>* touch(const std::string& key, bool make) {
    auto at = std::find_if(scopes_.begin(), scopes_.end(), [&](const ModelScope& s) { return s.key == key; });
    if (at == scopes_.end() && !make) return nullptr;
    if (at == scopes_.end()) {
      scopes_.emplace_front();
      scopes_.front().key = key;
      if (scopes_.size() > g_.max_scopes) scopes_.pop_back();
    } else {
      scopes_.splice(scopes_.begin(), scopes_, at);
    }
    return &scopes_;
  }

  const Geometry g_;
  std::list<ModelScope> scopes_;  // most recently used first
};

// One call of the cache as a vector; what is behind the copy must be untouched.
Tokens propose(SharedCache& cache, const std::string& key, const Tokens& history, std::size_t room, std::uint64_t operation) {
  Tokens out(room + 1, 0xABABABAB);
  const std::size_t k = cache.geometry().key_len;
  const std::uint32_t* const last = history.size() < k ? nullptr : history.data() + history.size() - k;
  const std::size_t n = cache.propose(key, last, out.data(), room);
  if (n > room || out[room] != 0xABABABAB) fail("more was written than there was room for", operation);
  out.resize(n);
  return out;
}

void compare_with_model(std::uint64_t operations, Random& random) {
  std::uint64_t done = 0, copies = 0;
  while (done < operations) {
    // 63 n-grams at most in 128 sets and a ring that is soon full, or 2,500 in 8,192 sets: no table is full.
    const bool small = random.below(2) != 0;
    const std::size_t key_len = 1 + random.below(3), most[] = {small ? 63u : 2500u, small ? 7u : 50u, small ? 3u : 13u};
    const std::size_t vocabulary = 2 + random.below(most[key_len - 1] - 1);
    const Geometry geometry = geometry_of((small ? 16384 + 8192 * random.below(2) : 1 << 20) * 3, 3, key_len);
    SharedCache cache(geometry);
    Model model(geometry);
    for (std::uint64_t i = 0; i < 2000 && done < operations; ++i, ++done) {
      const std::string key(1, char('a' + random.below(5)));
      Tokens tokens(random.below(random.below(50) == 0 ? 10000 : 90));
      for (std::uint32_t& token : tokens) token = std::uint32_t(random.below(vocabulary));
      if (random.below(2) != 0) {
        if (cache.insert(key, tokens) != model.insert(key, tokens)) fail("another number of tokens was stored", done);
      } else if (random.below(100) == 0) {
        cache.remove(key);
        model.remove(key);
      } else {
        const std::size_t room = random.below(40);
        const Tokens copy = propose(cache, key, tokens, room, done);
        copies += !copy.empty();
        if (copy != model.propose(key, tokens, room)) fail("another copy was proposed", done);
      }
      if (cache.stats().scopes != model.size()) fail("another number of scopes is there", done);
    }
  }
  report("model", done, copies);
}

// The base text of a scope, and how far inserted slices reach from each of its positions.
class Base {
 public:
  static constexpr std::size_t kTokens = 6000, kVocabulary = 24;

  Base(std::size_t key_len, Random& random)
      : key_len_(key_len), text_(kTokens), reach_(new std::atomic<std::uint32_t>[kTokens]()) {
    // Passages that are said again, so that n-grams recur with other continuations.
    for (std::size_t i = 0; i < kTokens; ++i)
      text_[i] = i > 200 && random.below(9) != 0 ? text_[i - 200 + random.below(2)] : std::uint32_t(random.below(kVocabulary));
    for (std::size_t e = key_len; e < kTokens; ++e) ends_[packed(text_.data() + e - key_len)].push_back(e);
  }

  Tokens slice(std::size_t begin, std::size_t length) const {
    const std::size_t end = std::min(kTokens, begin + length);
    return Tokens(text_.begin() + std::ptrdiff_t(begin), text_.begin() + std::ptrdiff_t(end));
  }
  void will_insert(std::size_t begin, std::size_t length) {
    const auto end = std::uint32_t(std::min(kTokens, begin + length));
    for (std::size_t i = begin; i < end; ++i)
      for (std::uint32_t old = reach_[i]; old < end && !reach_[i].compare_exchange_weak(old, end);) continue;
  }
  bool was_inserted(const std::uint32_t* key, const Tokens& copy) const {
    const auto found = ends_.find(packed(key));
    if (found == ends_.end()) return false;
    for (const std::size_t end : found->second)
      if (reach_[end - key_len_] >= end + copy.size() &&
          std::equal(copy.begin(), copy.end(), text_.begin() + std::ptrdiff_t(end)))
        return true;
    return false;
  }

 private:
  std::uint64_t packed(const std::uint32_t* key) const {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < key_len_; ++i) value = value * kVocabulary + key[i];
    return value;
  }

  const std::size_t key_len_;
  Tokens text_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> reach_;
  std::map<std::uint64_t, std::vector<std::size_t>> ends_;
};

struct Bases {
  std::vector<std::unique_ptr<Base>> all;
  Bases(std::size_t n, std::size_t key_len, Random& random) {
    while (all.size() < n) all.push_back(std::make_unique<Base>(key_len, random));
  }
};

// One operation on a random scope. Gives the length of a copy that was proposed.
std::size_t operate(SharedCache& cache, Bases& bases, Random& random, std::uint64_t operation) {
  const std::size_t which = random.below(bases.all.size()), begin = random.below(Base::kTokens - 20);
  const std::string key = "scope" + std::to_string(which);
  Base& base = *bases.all[which];
  const std::size_t kind = random.below(1000);
  if (kind < 450) {
    const std::size_t length = random.below(random.below(30) == 0 ? Base::kTokens : 100);
    base.will_insert(begin, length);
    cache.insert(key, base.slice(begin, length));
  } else if (kind < 998) {
    const Tokens history = base.slice(begin, 12);
    const Tokens copy = propose(cache, key, history, random.below(20), operation);
    if (!copy.empty() && !base.was_inserted(history.data() + history.size() - cache.geometry().key_len, copy))
      fail("what was proposed was never inserted", operation);
    return copy.size();
  } else if (kind == 998) {
    cache.remove(key);
  } else {
    const CacheStats stats = cache.stats();
    if (stats.scopes > cache.geometry().max_scopes || stats.held > stats.scopes * cache.geometry().ring)
      fail("the memory is not what the geometry says", operation);
  }
  return 0;
}

void check_soundness(std::uint64_t operations, Random& random) {
  std::uint64_t done = 0, copies = 0;
  while (done < operations) {
    const std::size_t key_len = 1 + random.below(5), scopes = 1 + random.below(4);
    Bases bases(5, key_len, random);
    SharedCache cache(geometry_of(6144 * scopes + random.below(16384), scopes, key_len));
    for (std::uint64_t i = 0; i < 20000 && done < operations; ++i, ++done) copies += operate(cache, bases, random, done) > 0;
  }
  report("sound", done, copies);
}

// A child has whole scopes and free locks.
[[maybe_unused]] void fork_once(SharedCache& cache, Bases& bases) {
  const pid_t child = fork();
  if (child == 0) {
    Random random{std::uint64_t(getpid())};
    for (int i = 0; i < 200; ++i) operate(cache, bases, random, std::uint64_t(i));
    std::_Exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) fail("a child of fork failed", 0);
}

void run_threads(std::uint64_t operations, std::size_t threads) {
  Random random(1);
  Bases bases(5, 3, random);
  SharedCache cache(geometry_of(6144 * 3, 3, 3));
  std::atomic<std::uint64_t> copies = 0;
  std::vector<std::thread> running;
  for (std::size_t t = 0; t < threads; ++t)
    running.emplace_back([&, t] {
      Random own(100 + t);
      for (std::uint64_t i = 0; i < operations / threads; ++i) copies += operate(cache, bases, own, i) > 0;
    });
// ThreadSanitizer does not follow a child of several threads. AddressSanitizer's allocator may be held by a thread that
// the child has not: there it waits forever at its first allocation, and forks come when the threads have ended.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  for (int i = 0; i < 20; ++i) fork_once(cache, bases);
#endif
  for (std::thread& thread : running) thread.join();
#ifdef __SANITIZE_ADDRESS__
  for (int i = 0; i < 20; ++i) fork_once(cache, bases);
#endif
  report("threads", operations, copies);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const std::uint64_t operations = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  const std::uint64_t third = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
  Random random(third + 1);
  if (operations > 0 && mode == "model")
    compare_with_model(operations, random);
  else if (operations > 0 && mode == "sound")
    check_soundness(operations, random);
  else if (operations > 0 && mode == "threads")
    run_threads(operations, third != 0 ? std::size_t(third) : 8);
  else
    return std::fprintf(stderr, "usage: shared_lookup_fuzz model|sound|threads OPERATIONS [SEED or THREADS]\n"), 2;
  return 0;
}
