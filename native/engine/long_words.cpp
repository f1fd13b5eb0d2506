// The ring is written round and round; a place says how much had been written before its record, which tells whether it is
// still there.
#include "long_words.h"

#include "faults.h"
#include "shared/hash.h"

namespace toktier {

LongWords::~LongWords() {
  std::free(places_);
  std::free(ring_);
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

void LongWords::prefetch(const std::uint8_t* text, std::uint32_t size, std::uint64_t readable, bool part) {
  if (size <= MiddleCache::Key::longest) {
    const auto* const set = middle_.prefetch(MiddleCache::Key(text, size, readable, part));
    __builtin_prefetch(set + 1);
  }
}

LongWords::Found LongWords::find(const std::uint8_t* text, std::uint32_t size, std::uint64_t readable, bool part) const {
  if (size <= MiddleCache::Key::longest) {
    const MiddleCache::Entry* const hit = middle_.find(MiddleCache::Key(text, size, readable, part));
    if (hit != nullptr) return {hit->ids, hit->count()};
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

void LongWords::remember(const std::uint8_t* text, std::uint32_t size, std::uint64_t readable, bool part,
                         const std::uint32_t* ids, std::uint32_t count) {
  if (size <= MiddleCache::Key::longest) {
    if (count >= 1 && count <= MiddleCache::most_ids) {  // an entry has one at least
      middle_.insert(MiddleCache::Key(text, size, readable, part), ids, count);
      return;
    }
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

std::size_t LongWords::bytes() const { return places_ == nullptr ? 0 : places * sizeof(Place) + ring_size; }

}  // namespace toktier
