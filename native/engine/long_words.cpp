// A word has two places in its line and two in the line beside it, as in word_cache.cpp. The ring is written round and round; a
// place says how much had been written before its record, which tells whether it is still there.
#include "long_words.h"

#include <cstdlib>
#include <new>
#include <utility>

#include "faults.h"
#include "shared/hash.h"

namespace toktier {

LongWords::~LongWords() {
  std::free(places_);
  std::free(ring_);
}

void LongWords::look_up(WordWindow& w, Scratch<std::uint32_t>& ids) {
  if (lines_.empty()) return;
  const std::uint32_t count = w.longer_count;
  std::uint32_t* const room = ids.room(std::size_t{count} * (most_long_ids + 1)) - ids.size();
  ids.resize(lanes_.look_up(w, lines_.data(), lines_.mask(), room, static_cast<std::uint32_t>(ids.size())));
  traffic_.looked_up += count;
}

namespace {

bool same(const LongKey& a, const LongKey& b) {
  return ((a.word[0] ^ b.word[0]) | (a.word[1] ^ b.word[1]) | (a.word[2] ^ b.word[2]) | (a.word[3] ^ b.word[3])) == 0;
}

}  // namespace

// What is found beside its line changes places with one of its line, which is then beside its own, or comes home.
LongEntry* LongWords::find_entry(const LongKey& key) {
  const std::uint32_t line = lanes_.line_of(key, lines_.mask());
  LongEntry* const e = lines_[line].entry;
  LongEntry* const other = lines_[line ^ 1].entry;
  for (int i = 0; i < 2; ++i)
    if (same(e[i].key, key)) return e + i;
  for (int i = 0; i < 2; ++i) {
    if (!same(other[i].key, key)) continue;
    std::swap(e[1], other[i]);
    return e + 1;
  }
  return nullptr;
}

void LongWords::insert(const LongEntry& entry) {
  const std::uint32_t line = lanes_.line_of(entry.key, lines_.mask());
  LongEntry* const e = lines_[line].entry;
  LongEntry* const other = lines_[line ^ 1].entry;
  LongEntry* const at[] = {e, e + 1, other, other + 1};
  for (LongEntry* const here : at)
    if (same(here->key, entry.key)) {
      *here = entry;
      return;
    }
  for (LongEntry* const here : at)
    if (here->count == 0) {
      *here = entry;
      return;
    }
  ++traffic_.evicted;
  e[0] = e[1];
  e[1] = entry;
}

// Sooner than WordCache, when one place in 32 went to another word: a long one is several times as dear to make again.
void LongWords::consider_growth() {
  if (lines_.empty() || fixed_ != 0 || lines_.count() == most_lines || traffic_.evicted < lines_.count() / 16) return;
  if (!traffic_.pays_growth()) return;
  const CacheLines<LongLine> old = std::exchange(lines_, CacheLines<LongLine>(most_lines, false));
  for (std::uint32_t i = 0; i < old.count(); ++i)
    for (const LongEntry& e : old[i].entry)
      if (e.count != 0) insert(e);
  traffic_ = {};
}

std::uint64_t LongWords::hash_of(const std::uint8_t* text, std::uint32_t size, bool part) {
  std::uint64_t h = (TT_HASH_A * (size * 2 + part)) ^ TT_HASH_B, word;
  std::uint32_t i = 0;
  for (; i + 8 <= size; i += 8) {
    std::memcpy(&word, text + i, 8);
    h = tt_hash_mix((h ^ word) * TT_HASH_A);
  }
  std::memcpy(&word, text + size - 8, 8);  // never shorter
  return tt_hash_mix((h ^ word) * TT_HASH_A);
}

LongWords::Found LongWords::find(const std::uint8_t* text, std::uint32_t size, bool part) {
  if (size <= longest_long_word && !lines_.empty()) {
    const LongEntry* const e = find_entry(long_key_of(text, size, part));
    if (e != nullptr) return {e->ids, e->count};
  }
  if (size > longest || places_ == nullptr) return {nullptr, 0};
  const std::uint64_t hash = hash_of(text, size, part);
  const Place* const pair = places_ + (hash >> 32) % (places / 2) * 2;
  for (const Place* p = pair; p < pair + 2; ++p) {
    if (TOKTIER_FAULT(long_key) ? p->at == 0 : p->hash != hash || p->at == 0) continue;
    if (p->at - 1 + ring_size < written_) continue;
    const std::uint8_t* const record = ring_ + (p->at - 1) % ring_size;
    Head head;
    std::memcpy(&head, record, sizeof head);
    const std::uint8_t* const ids = record + sizeof head;
    if (head.size == (size | (part ? 0x80000000u : 0u)) &&
        std::memcmp(ids + head.count * sizeof(std::uint32_t), text, TOKTIER_FAULT(long_key) ? 32 : size) == 0)
      return {reinterpret_cast<const std::uint32_t*>(ids), head.count};
  }
  return {nullptr, 0};
}

void LongWords::remember(const std::uint8_t* text, std::uint32_t size, bool part, const std::uint32_t* ids, std::uint32_t count) {
  if (size <= longest_long_word && count >= 1 && count <= most_long_ids) {
    ++traffic_.missed;
    // Not populated: many texts have few long words.
    if (lines_.empty()) lines_ = CacheLines<LongLine>(fixed_ != 0 ? fixed_ : first_lines, false);
    LongEntry entry{long_key_of(text, size, part), {}, count - (TOKTIER_FAULT(cache_full) && count == most_long_ids)};
    std::memcpy(entry.ids, ids, count * sizeof *ids);
    insert(entry);
    return;
  }
  if (size > longest) return;
  if (places_ == nullptr) {
    places_ = static_cast<Place*>(std::calloc(places, sizeof(Place)));
    ring_ = static_cast<std::uint8_t*>(std::calloc(ring_size, 1));
    if (places_ == nullptr || ring_ == nullptr) {
      std::free(places_);
      std::free(ring_);
      places_ = nullptr, ring_ = nullptr;
      throw std::bad_alloc();
    }
  }
  const Head head{size | (part ? 0x80000000u : 0u), count};
  const std::uint64_t length = (sizeof head + count * sizeof *ids + size + 7) & ~std::uint64_t{7};
  if (written_ % ring_size + length > ring_size) written_ += ring_size - written_ % ring_size;  // in one stretch
  std::uint8_t* const record = ring_ + written_ % ring_size;
  std::memcpy(record, &head, sizeof head);
  std::memcpy(record + sizeof head, ids, count * sizeof *ids);
  std::memcpy(record + sizeof head + count * sizeof *ids, text, size);
  const std::uint64_t hash = hash_of(text, size, part);
  Place* const pair = places_ + (hash >> 32) % (places / 2) * 2;
  if (pair[0].hash != hash) pair[1] = pair[0];
  pair[0] = {hash, written_ + 1};
  written_ += length;
}

}  // namespace toktier
