// The index: one slot for each distinct n-gram, with the position of the token that followed it last.
#include "speculative/prompt_lookup.h"

#include <algorithm>
#include <bit>
#include <random>
#include <stdexcept>

namespace toktier::speculative {

namespace {

constexpr std::size_t kFewestSlots = 64;

// Never 0, so that no slot in use is.
std::uint32_t slot_hash(std::uint64_t rolled) { return std::uint32_t(NgramHash::mix(rolled) >> 32) | 1u << 31; }

// Of the process. Prompts come from anybody, and with a known base one of them could make every look-up probe all slots.
std::uint64_t secret_base() {
  static const std::uint64_t base = [] {
    std::random_device random;
    return std::uint64_t(random()) << 32 | random();
  }();
  return base;
}

std::uint32_t position_of(std::uint64_t slot) { return std::uint32_t(slot); }
std::uint32_t hash_of(std::uint64_t slot) { return std::uint32_t(slot >> 32); }

// To hold `n`, in steps that cost constant time a token however small the appends are.
void make_room(std::vector<std::uint32_t>& v, std::size_t n) {
  if (v.capacity() < n) v.reserve(std::max(n, v.capacity() * 2));
}

}  // namespace

PromptLookup::PromptLookup(std::size_t key_len) : key_len_(key_len), hash_(key_len, secret_base()) {}

std::size_t PromptLookup::memory() const {
  return (tokens_.capacity() + earlier_.capacity()) * sizeof(std::uint32_t) + slots_.capacity() * sizeof(Slot);
}

// Room for `more` tokens, so that appending them cannot fail.
void PromptLookup::reserve(std::size_t more) {
  if (more > kLongestHistory - tokens_.size()) throw std::length_error("a history of more than 2147483647 tokens");
  make_room(tokens_, tokens_.size() + more);
  make_room(earlier_, tokens_.size() + more);
  if ((taken_ + more) * 4 <= slots_.size() * 3) return;
  // Slots that were taken back are left behind.
  const auto live = std::size_t(std::count_if(slots_.begin(), slots_.end(), [](Slot s) { return position_of(s) != 0; }));
  std::vector<Slot> larger(std::max(kFewestSlots, std::bit_ceil((live + more) * 2)));
  for (const Slot slot : slots_) {
    if (position_of(slot) == 0) continue;
    std::size_t at = hash_of(slot) & (larger.size() - 1);
    while (larger[at] != 0) at = (at + 1) & (larger.size() - 1);
    larger[at] = slot;
  }
  slots_.swap(larger);
  taken_ = live;
}

// The slot of the n-gram at `key`, or the empty one where it belongs.
PromptLookup::Slot* PromptLookup::find(std::uint32_t hash, const std::uint32_t* key) {
  for (std::size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot slot = slots_[at];
    if (slot == 0) return &slots_[at];
    const std::uint32_t position = position_of(slot);
    if (hash_of(slot) == hash && position != 0 && std::equal(key, key + key_len_, tokens_.data() + position - key_len_))
      return &slots_[at];
  }
}

// The n-gram before the last token, which is what followed it.
void PromptLookup::index_last() {
  const std::size_t position = tokens_.size() - 1;
  const std::uint32_t hash = slot_hash(rolled_);
  Slot* const slot = find(hash, tokens_.data() + position - key_len_);
  taken_ += *slot == 0;
  earlier_[position] = position_of(*slot);
  *slot = Slot(hash) << 32 | position;
}

void PromptLookup::append(std::span<const std::uint32_t> tokens) {
  if (tokens.empty()) return;
  reserve(tokens.size());
  earlier_.resize(tokens_.size() + tokens.size());
  for (const std::uint32_t token : tokens) {
    const std::size_t before = tokens_.size();
    tokens_.push_back(token);
    if (before >= key_len_) {
      index_last();
      rolled_ = hash_.roll(rolled_, tokens_[before - key_len_], token);
    } else if (before + 1 == key_len_) {
      rolled_ = hash_.of(tokens_.data());
    }
  }
}

void PromptLookup::truncate(std::size_t length) {
  while (tokens_.size() > length) {
    const std::size_t position = tokens_.size() - 1;
    if (position >= key_len_) {
      const std::uint32_t* const key = tokens_.data() + position - key_len_;
      rolled_ = hash_.of(key);
      const std::uint32_t hash = slot_hash(rolled_);
      *find(hash, key) = Slot(hash) << 32 | earlier_[position];
    }
    tokens_.pop_back();
  }
  earlier_.resize(length);
}

std::span<const std::uint32_t> PromptLookup::propose(std::size_t room) const {
  const std::size_t n = tokens_.size();
  if (n <= key_len_) return {};
  const Slot slot = *const_cast<PromptLookup*>(this)->find(slot_hash(rolled_), tokens_.data() + n - key_len_);
  const std::size_t position = position_of(slot);
  if (position == 0) return {};
  return std::span(tokens_).subspan(position, std::min(room, n - position));
}

}  // namespace toktier::speculative
