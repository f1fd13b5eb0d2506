#include "cache/prefix_store.h"

#include <bit>
#include <cstring>
#include <utility>

namespace toktier::cache {

namespace {

// Shares of the capacity, as Caffeine and moka have them: 1 % for the newest, four fifths of the rest for what was hit there.
constexpr std::uint64_t kWindowShare = 100;
std::uint64_t protected_capacity(std::uint64_t capacity) { return (capacity - capacity / kWindowShare) / 5 * 4; }

// What an entry takes beside its ids: itself, its node and bucket in the table of keys, and three heads of the allocator.
constexpr std::uint64_t kEntryBytes = sizeof(PrefixStore::Entry) + 96;
// What a namespace with entries takes beside its name.
constexpr std::uint64_t kNamespaceBytes = sizeof(PrefixStore::Namespaces::value_type) + 64;

// A word of the sketch has 4 counters for each row: about one for each entry of 256 bytes.
std::size_t sketch_words(std::uint64_t capacity) {
  return std::size_t(std::bit_ceil(std::clamp<std::uint64_t>(capacity / 1024, 16, 1 << 16)));
}

}  // namespace

std::size_t PrefixStore::Hash::operator()(const Digest& key) const {
  std::size_t value;
  std::memcpy(&value, key.data(), sizeof value);
  return value;
}

PrefixStore::PrefixStore(std::uint64_t capacity, bool of_resident)
    : capacity_(capacity), of_resident_(of_resident), asked_(sketch_words(capacity)) {}

std::uint64_t PrefixStore::weight(std::uint64_t own, std::uint64_t total) const {
  return of_resident_ ? own * sizeof(std::uint32_t) + kEntryBytes : total * sizeof(std::uint32_t);
}

PrefixStore::Sizes PrefixStore::sizes(const std::string& name_space) const {
  const auto found = namespaces_.find(name_space);
  return found == namespaces_.end() ? Sizes{} : found->second;
}

PrefixStore::Entry* PrefixStore::ask(const Digest& key) {
  asked_.add(key);
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : found->second.get();
}

void PrefixStore::use(Entry* entry) {
  hold(entry);
  if (entry->part == Part::probation) entry->part = Part::protected_;
}

void PrefixStore::copy(const Entry* entry, std::uint32_t* ids) {
  for (; entry != nullptr; entry = entry->parent)
    if (entry->own != 0)
      std::memcpy(ids + (entry->total - entry->own), entry->ids.get(), std::size_t(entry->own) * sizeof *ids);
}

PrefixStore::Entry* PrefixStore::add(const Digest& key, Entry* parent, const std::uint32_t* ids, std::uint64_t own,
                                     const std::string& name_space) {
  const auto known = entries_.find(key);
  if (known != entries_.end()) {
    hold(known->second.get());
    return known->second.get();
  }
  const std::uint64_t total = own + (parent == nullptr ? 0 : parent->total);
  if (capacity_ == 0 || weight(own, total) > capacity_) {
    ++counts_.refused;
    return nullptr;
  }
  auto made = std::make_unique<Entry>();
  made->key = key;
  made->parent = parent;
  made->total = total;
  made->own = own;
  made->ids = std::make_unique_for_overwrite<std::uint32_t[]>(std::size_t(own));
  if (own != 0) std::memcpy(made->ids.get(), ids, std::size_t(own) * sizeof *ids);
  made->name_space = &*namespaces_.try_emplace(name_space).first;
  adding_ = entries_.emplace(key, std::move(made)).first->second.get();
  if (parent != nullptr) hold(parent);
  account(adding_, true);
  link(adding_, true);
  fit();
  if (adding_ != nullptr) hold(adding_);
  return std::exchange(adding_, nullptr);
}

void PrefixStore::clear() {
  // A parent that is let go may join a list that was emptied before.
  for (bool any = true; any;) {
    any = false;
    for (List& part : lists_)
      for (; part.oldest != nullptr; any = true) {
        Entry* const entry = part.oldest;
        unlink(entry);
        remove(entry);
      }
  }
}

bool PrefixStore::is_full() const {
  if (of_resident_) return sizes_.resident > capacity_;
  return sizes_.bytes > capacity_ || sizes_.resident > 4 * capacity_ + (1 << 16);
}

void PrefixStore::account(const Entry* entry, bool there) {
  const std::uint64_t sign = there ? 1 : ~std::uint64_t(0);  // modulo 2^64: plus or minus one
  const bool alone = entry->name_space->second.entries == (there ? 0 : 1);
  const std::uint64_t name = alone ? kNamespaceBytes + entry->name_space->first.size() : 0;
  for (Sizes* sizes : {&sizes_, &entry->name_space->second}) {
    sizes->entries += sign;
    sizes->bytes += sign * entry->total * sizeof(std::uint32_t);
    sizes->resident += sign * (entry->own * sizeof(std::uint32_t) + kEntryBytes + name);
  }
}

void PrefixStore::link(Entry* entry, bool as_newest) {
  List& part = list(entry->part);
  Entry*& end = as_newest ? part.newest : part.oldest;
  Entry*& other_end = as_newest ? part.oldest : part.newest;
  entry->newer = as_newest ? nullptr : end;
  entry->older = as_newest ? end : nullptr;
  if (end != nullptr) (as_newest ? end->newer : end->older) = entry;
  end = entry;
  if (other_end == nullptr) other_end = entry;
  part.weight += weight(entry);
}

void PrefixStore::unlink(Entry* entry) {
  List& part = list(entry->part);
  (entry->newer == nullptr ? part.newest : entry->newer->older) = entry->older;
  (entry->older == nullptr ? part.oldest : entry->older->newer) = entry->newer;
  entry->newer = entry->older = nullptr;
  part.weight -= weight(entry);
}

void PrefixStore::move(Entry* entry, Part part) {
  unlink(entry);
  entry->part = part;
  link(entry, true);
}

void PrefixStore::hold(Entry* entry) {
  if (entry->holders++ == 0) unlink(entry);
}

void PrefixStore::release(Entry* entry, bool as_newest) {
  if (--entry->holders != 0) return;
  link(entry, as_newest);
  if (as_newest) fit();  // else it is a parent, and its child is going in a fit() already
}

void PrefixStore::remove(Entry* entry) {
  account(entry, false);
  if (entry == adding_) adding_ = nullptr;
  if (entry->name_space->second.entries == 0) namespaces_.erase(namespaces_.find(entry->name_space->first));
  Entry* const parent = entry->parent;
  entries_.erase(entries_.find(entry->key));
  if (parent != nullptr) release(parent, false);
}

PrefixStore::Entry* PrefixStore::oldest_of_main() {
  Entry* const of_probation = list(Part::probation).oldest;
  return of_probation != nullptr ? of_probation : list(Part::protected_).oldest;
}

void PrefixStore::fit() {
  const auto evict = [&](Entry* entry, std::uint64_t& counted) {
    unlink(entry);
    remove(entry);
    ++counted;
  };
  List& window = list(Part::window);
  for (;;) {
    const bool full = is_full(), spills = window.weight > capacity_ / kWindowShare;
    if (!full && !spills) break;
    if (!full) {
      move(window.oldest, Part::probation);
      continue;
    }
    Entry* const candidate = window.oldest;
    Entry* const victim = oldest_of_main();
    if (victim == nullptr && candidate == nullptr) break;  // all is held: what is added is not, and it was not full before
    if (candidate == nullptr || (!spills && victim != nullptr))
      evict(victim, counts_.evicted);
    else if (victim != nullptr && asked_.count(candidate->key) > asked_.count(victim->key))
      evict(victim, counts_.evicted);
    else
      evict(candidate, counts_.refused);
  }
  List& hit = list(Part::protected_);
  while (hit.weight > protected_capacity(capacity_)) move(hit.oldest, Part::probation);
}

}  // namespace toktier::cache
