// The ids of prefixes of texts by the digests of the prefixes: entries that hold only what their parent, a shorter prefix of the
// same text, has not, so that n turns of a conversation take memory for one conversation. A parent lives while a child does; what
// goes is chosen by W-TinyLFU (Einziger, Friedman and Manes) among entries without a child: a small window of the newest, and a
// main part that a key from the window enters only if it was asked for more often than the one that it would push out.
// Not thread-safe: whoever calls holds one lock (of Python: the GIL), for which every operation is short. Not here: what a digest
// is made of, and where prefixes end (native/bind/prefix_cache.cpp).
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "cache/frequency_sketch.h"
#include "cache/sha256.h"

namespace toktier::cache {

class PrefixStore {
 public:
  struct Sizes {
    std::uint64_t entries = 0;
    std::uint64_t bytes = 0;     // of ids, as if every entry held its whole prefix
    std::uint64_t resident = 0;  // of ids that are held, and of what keeps them
  };
  struct Counts {
    std::uint64_t evicted = 0;   // entries that went for others
    std::uint64_t refused = 0;   // that were asked for less often than what they would have pushed out, or are too large
  };
  using Namespaces = std::unordered_map<std::string, Sizes>;
  enum class Part : std::uint8_t { window, probation, protected_ };
  struct Entry {
    Digest key;
    Entry* parent;                           // of a shorter prefix, or null
    std::uint64_t total, own;                // ids of the whole prefix; those that the parent has not
    std::unique_ptr<std::uint32_t[]> ids;    // [own], the last ones
    Namespaces::value_type* name_space;
    Entry *newer = nullptr, *older = nullptr;  // in the list of its part, while nothing holds it
    std::uint32_t holders = 0;               // children, and callers
    Part part = Part::window;
  };

  // `capacity`: of Sizes::bytes, or of Sizes::resident; never exceeded between two calls. As entries may be small beside what
  // keeps them, Sizes::resident is bounded in the first case, too: by four times the capacity and 64 KiB.
  PrefixStore(std::uint64_t capacity, bool of_resident);
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;

  // Counts that the key was asked for; null where it is not there.
  Entry* ask(const Digest& key);
  // The entry answered, and is kept from being evicted until let go.
  void use(Entry* entry);
  void let_go(Entry* entry) { release(entry, true); }

  static void copy(const Entry* entry, std::uint32_t* ids);  // all of its prefix

  // Keeps the prefix `key`, whose ids are those of `parent`, an entry of a shorter prefix that the caller holds (null: none),
  // and `own` more. The entry, held for the caller, where it is there afterwards, be it that it was before; null where it was refused.
  Entry* add(const Digest& key, Entry* parent, const std::uint32_t* ids, std::uint64_t own, const std::string& name_space);

  void clear();  // all that nobody holds
  const Sizes& sizes() const { return sizes_; }
  Sizes sizes(const std::string& name_space) const;
  const Counts& counts() const { return counts_; }
  std::uint64_t capacity() const { return capacity_; }
  bool of_resident() const { return of_resident_; }

 private:
  struct List {
    Entry *newest = nullptr, *oldest = nullptr;
    std::uint64_t weight = 0;
  };
  struct Hash {
    std::size_t operator()(const Digest& key) const;
  };

  List& list(Part part) { return lists_[std::size_t(part)]; }
  std::uint64_t weight(std::uint64_t own, std::uint64_t total) const;
  std::uint64_t weight(const Entry* entry) const { return weight(entry->own, entry->total); }
  bool is_full() const;
  void account(const Entry* entry, bool there);
  void link(Entry* entry, bool as_newest);
  void unlink(Entry* entry);
  void move(Entry* entry, Part part);
  void hold(Entry* entry);
  void release(Entry* entry, bool as_newest);
  void remove(Entry* entry);
  Entry* oldest_of_main();
  void fit();

  const std::uint64_t capacity_;
  const bool of_resident_;
  std::unordered_map<Digest, std::unique_ptr<Entry>, Hash> entries_;
  Namespaces namespaces_;
  Sizes sizes_;
  Counts counts_;
  List lists_[3];  // of the parts: entries that nothing holds
  Entry* adding_ = nullptr;  // null again where it did not stay
  FrequencySketch asked_;
};

}  // namespace toktier::cache
