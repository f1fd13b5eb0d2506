// A word has two places in its line and two in the line beside it, which lies in the same pair of lines that processors fetch
// together. They are given away in this order: empty ones, those of single tokens, which one look-up in the vocabulary makes
// again, then the older one of its own line.
#include "word_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "faults.h"

namespace toktier {

WordCache::WordCache(const WordLanes& lanes, std::uint32_t first, std::uint32_t most) : lanes_(lanes), most_(most) {
  allocate(first);
}

WordCache::~WordCache() {
  ::munmap(memory_, mapped_);
  std::free(ring_);
}

// Words are spread over all of it, so that nearly every page is soon touched: small pages cost two faults each, more than all
// words that are looked up in it in a first pass, and more translations than a processor keeps. So it is huge pages where they
// are to be had, and all pages at once where not. The line behind the last one would take a huge page for itself.
void WordCache::allocate(std::uint32_t lines) {
  constexpr std::size_t huge = std::size_t{1} << 21;
  const std::size_t size = std::size_t{lines} * sizeof(WordLine), mapped = size + huge + 4096;
  void* const memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = memory;
  mapped_ = mapped;
  lines_ = reinterpret_cast<WordLine*>((reinterpret_cast<std::uintptr_t>(memory) + huge - 1) & ~(huge - 1));
#ifdef MADV_HUGEPAGE
  if (size >= huge) ::madvise(lines_, size, MADV_HUGEPAGE);
#endif
#ifdef MADV_POPULATE_WRITE
  ::madvise(lines_, (size + 4095) & ~std::size_t{4095}, MADV_POPULATE_WRITE);
#endif
  mask_ = lines - 1;
  lines_[lines].entry[0].key = {~std::uint64_t{0}, ~std::uint64_t{0}};
}

namespace {

bool same(const WordKey& a, const WordKey& b) { return ((a.low ^ b.low) | (a.high ^ b.high)) == 0; }

}  // namespace

const WordValue* WordCache::find(const WordKey& key, std::uint32_t line) {
  WordEntry* const e = lines_[line].entry;
  for (int i = 0; i < 2; ++i)
    if (same(e[i].key, key)) return &e[i].value;
  WordEntry* const other = beside(e);
  for (int i = 0; i < 2; ++i) {
    if (!same(other[i].key, key)) continue;
    if (home(e[1].key) == e) std::swap(e[1], other[i]);  // else it would be found nowhere
    return same(e[1].key, key) ? &e[1].value : &other[i].value;
  }
  return nullptr;
}

// Where it is, or where it may go, without a branch for each place: which one it will be is anybody's guess.
void WordCache::insert(const WordKey& key, std::uint32_t line, const WordValue& value) {
  WordEntry* const e = lines_[line].entry;
  WordEntry* const other = beside(e);
  const WordEntry added{key, value};
  const auto places = [&](auto&& fits) {
    return unsigned{fits(e[0])} | unsigned{fits(e[1])} << 1 | unsigned{fits(other[0])} << 2 | unsigned{fits(other[1])} << 3;
  };
  const unsigned here = places([&](const WordEntry& at) { return same(at.key, key); });
  const unsigned empty = places([](const WordEntry& at) { return at.key.high == 0; });
  if ((here | empty) != 0) {
    const int place = __builtin_ctz(here != 0 ? here : empty);
    (place < 2 ? e + place : other + place - 2)[0] = added;
    return;
  }
  ++evicted_;
  if (e[1].value.count == 1) {
    e[1] = added;
  } else if (e[0].value.count == 1) {
    e[0] = added;
  } else {
    e[0] = e[1];
    e[1] = added;
  }
}

void WordCache::insert(const WordKey& key, std::uint32_t line, const std::uint32_t* ids, std::uint32_t count) {
  if (key.high == 0) return;  // the word without bytes
  WordValue value{};
  value.count = count;
  if (count <= inline_ids) {
    for (std::uint32_t i = 0; i < count; ++i) value.ids[i] = ids[i];
    if (TOKTIER_FAULT(cache_full) && count == inline_ids) --value.count;
  } else {
    if (ring_ == nullptr && (ring_ = static_cast<std::uint32_t*>(std::calloc(ring_size, sizeof *ring_))) == nullptr)
      throw std::bad_alloc();
    if (given_ % ring_size + count > ring_size) given_ += ring_size - given_ % ring_size;  // in one stretch
    std::memcpy(ring_ + given_ % ring_size, ids, count * sizeof *ids);
    if (TOKTIER_FAULT(word_ring)) ring_[given_ % ring_size + count - 1] = ring_[count - 1];
    value.ids[0] = static_cast<std::uint32_t>(given_);
    value.ids[1] = static_cast<std::uint32_t>(given_ >> 32);
    value.ids[2] = word_in_ring;
    given_ += count;
  }
  insert(key, line, value);
}

const std::uint32_t* WordCache::in_ring(const WordValue& value) const {
  const std::uint64_t place = value.ids[0] | std::uint64_t{value.ids[1]} << 32;
  return place + ring_size >= given_ || TOKTIER_FAULT(ring_stale) ? ring_ + place % ring_size : nullptr;
}

void WordCache::consider_growth(std::uint32_t looked_up, std::uint32_t missed) {
  looked_up_ += looked_up;
  missed_ += missed;
  // Words that had to go are made again, some 150 ns each when they come; to grow costs what 24,000 of them do, nearly all of it
  // fresh memory. When as much was spent one way, it is spent the other way: at most twice the price of whichever is right.
  if (evicted_ < (mask_ + 1) / 4 * 3 || mask_ + 1 >= most_) return;
  const bool earned = missed_ * 64 > looked_up_;
  looked_up_ = missed_ = evicted_ = 0;
  if (!earned) return;
  void* const old_memory = memory_;
  const std::size_t old_mapped = mapped_;
  const WordLine* const old = lines_;
  const std::uint32_t old_count = mask_ + 1;
  allocate(std::min(most_, 8 * old_count));
  for (std::uint32_t i = 0; i < old_count; ++i)
    for (const WordEntry& e : old[i].entry)
      if (e.key.high != 0)
        insert(e.key, lanes_.line_of(e.key, mask_), TOKTIER_FAULT(cache_growth) ? old[i].entry[0].value : e.value);
  evicted_ = 0;
  ::munmap(old_memory, old_mapped);
}

std::size_t WordCache::bytes() const {
  return (std::size_t{mask_} + 4) * sizeof(WordLine) + (ring_ != nullptr ? ring_size * sizeof *ring_ : 0);
}

}  // namespace toktier
