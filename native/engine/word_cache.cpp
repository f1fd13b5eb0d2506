// A word has two places in its line and two in the line beside it, which lies in the same pair of lines that processors fetch
// together. They are given away in this order: empty ones, those of single tokens, which one look-up in the vocabulary makes
// again, then the older one of its own line.
#include "word_cache.h"

#include <cstdlib>
#include <new>
#include <utility>

#include "faults.h"

namespace toktier {

namespace {

// Words are spread over all lines, so that nearly every page is soon touched: small pages cost two faults each, more than all
// words that are looked up in it in a first pass, and more translations than a processor keeps. So it is huge pages where they
// are to be had, and all pages at once where not.
CacheLines<WordLine> make_lines(std::uint32_t count) {
  CacheLines<WordLine> lines(count, true);
  lines[count].entry[0].key = {~std::uint64_t{0}, ~std::uint64_t{0}};
  return lines;
}

bool same(const WordKey& a, const WordKey& b) { return ((a.low ^ b.low) | (a.high ^ b.high)) == 0; }

}  // namespace

WordCache::WordCache(const WordLanes& lanes, std::uint32_t fixed)
    : lanes_(lanes), most_(fixed != 0 ? fixed : most_lines), lines_(make_lines(fixed != 0 ? fixed : small_lines)) {}

WordCache::~WordCache() { std::free(ring_); }

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
  ++traffic_.evicted;
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

// From few lines to the usual number as soon as a few words had to go. From there, words that had to go are made again, some 150 ns
// each when they come; to grow costs what 24,000 of them do, nearly all of it fresh memory. When as much was spent one way, it is
// spent the other way: at most twice the price of whichever is right.
void WordCache::consider_growth(std::uint32_t looked_up, std::uint32_t missed) {
  traffic_.looked_up += looked_up;
  traffic_.missed += missed;
  const std::uint32_t count = lines_.count();
  const bool small = count < first_lines;
  if (traffic_.evicted < (small ? count / 4 : count / 4 * 3) || count >= most_) return;
  if (!small && !traffic_.pays_growth()) return;
  const CacheLines<WordLine> old = std::exchange(lines_, make_lines(small ? first_lines : most_lines));
  for (std::uint32_t i = 0; i < old.count(); ++i)
    for (const WordEntry& e : old[i].entry)
      if (e.key.high != 0)
        insert(e.key, lanes_.line_of(e.key, lines_.mask()), TOKTIER_FAULT(cache_growth) ? old[i].entry[0].value : e.value);
  traffic_ = {};
}

}  // namespace toktier
