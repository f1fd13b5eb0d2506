// Where each n-gram was last seen: two slots of 32 bits in every 8 bytes, sixteen to a cache line, which is a set. A slot holds
// the position of the token that followed the n-gram, modulo twice the ring and more, and what is left of 32 bits of the hash,
// its tag. An empty one is 0. A table knows no tokens: whoever finds compares them.
//
// An n-gram may stand in two sets, of which either is known from the other and the tag. It goes where a slot is empty or its
// position left the ring; else a slot moves over to its own other set to make room; only then the one that was seen longest ago
// is lost. So what was stored once is found again when it is sent again. With a slot for each ring token (every budget that gives
// a scope a power of two) a ring of text that never repeats loses 3 % of its n-grams, all of its oldest third.
//
// A position that left the ring long ago looks like a new one. It is compared as any other, and does no harm.
#pragma once
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "speculative/ways.h"

namespace toktier::speculative {

inline constexpr std::size_t kLongestRing = std::size_t(1) << 29;  // tokens; leaves two bits of tag

class SlotTable {
 public:
  using Slot = std::uint32_t;

  // `slots`: [2 n], zero, on a cache line, outliving the table; n, of 8 bytes, is a power of two and 16 or more. A position is
  // live while it and the key_len before it are among the last `ring`.
  SlotTable(Slot* slots, std::size_t n, std::size_t ring, std::size_t key_len)
      : slots_(slots),
        sets_(std::uint32_t(2 * n / kWays)),
        live_(std::uint32_t(ring - key_len)),
        position_bits_(unsigned(std::bit_width(ring - 1)) + 1),
        position_mask_((Slot(1) << position_bits_) - 1) {}

  // The two sets of an n-gram, and its tag, which is not 0, where it stands in a slot.
  struct Place {
    std::uint32_t first, second;
    Slot tag;
  };
  Place place_of(std::uint64_t hash) const {  // a mixed one
    const Slot tags = Slot(0xFFFFFFFF) >> position_bits_;
    const Slot tag = (Slot((hash >> 32) * tags >> 32) + 1) << position_bits_;
    const std::uint32_t set = std::uint32_t(hash) & (sets_ - 1);
    return {set, other(set, tag), tag};
  }
  void prefetch(const Place& place) const {
    __builtin_prefetch(slots_ + place.first * kWays, 1);
    __builtin_prefetch(slots_ + place.second * kWays, 1);
  }

  // Gives `use` the live positions below next() with the tag, until it gives true. For any thread.
  template <typename Next, typename Use>
  bool any(const Place& place, Next&& next, Use&& use) const {
    for (const std::uint32_t set : {place.first, place.second})
      for (const Slot* slot = slots_ + set * kWays; slot != slots_ + (set + 1) * kWays; ++slot) {
        const Slot value = std::atomic_ref(const_cast<Slot&>(*slot)).load(std::memory_order_acquire);
        if (((value ^ place.tag) & ~position_mask_) != 0) continue;
        const std::uint64_t now = next();
        const std::uint32_t back = since(value, now);
        if (back < live_ && use(now - 1 - back)) return true;
      }
    return false;
  }

  // The same for the writer, alone, who knows next: gives the slot, or null.
  template <typename Use>
  Slot* find(const Place& place, std::uint64_t next, Use&& use) const {
    for (const std::uint32_t set : {place.first, place.second}) {
      Slot* const slots = slots_ + set * kWays;
      for (std::uint32_t same = ways_with(slots, place.tag, position_mask_); same != 0; same &= same - 1) {
        Slot* const slot = slots + std::countr_zero(same);
        const std::uint32_t back = since(*slot, next);
        if (back < live_ && use(next - 1 - back)) return slot;
      }
    }
    return nullptr;
  }

  // For the writer. `slot`: of the same n-gram, or null. After the token at `position` was written, the latest one: who sees the
  // slot sees the token.
  void store(const Place& place, Slot* slot, std::uint64_t position) {
    if (credit_ < kMostCredit) ++credit_;
    put(slot != nullptr ? slot : room_in(place, position + 1), place.tag | (Slot(position) & position_mask_));
  }

 private:
  // A look at another set is a cache line from memory. There are a thousand at hand, and each store earns a sixteenth of one: a
  // table that fills finds all the room it has, and one that is full costs next to nothing more.
  static constexpr unsigned kLookCost = 16, kMostCredit = 1024 * kLookCost;

  static void put(Slot* slot, Slot value) { std::atomic_ref(*slot).store(value, std::memory_order_release); }

  std::uint32_t other(std::uint32_t set, Slot tag) const {
    return (set ^ ((tag >> position_bits_) * 0x9E3779B1u >> 7 | 1)) & (sets_ - 1);
  }
  // Tokens between a slot's position and `next`; of an empty slot more than any.
  std::uint32_t since(Slot slot, std::uint64_t next) const {
    return slot == 0 ? position_mask_ : (Slot(next) - 1 - slot) & position_mask_;
  }
  Slot* free_in(std::uint32_t set, std::uint64_t next) const {
    Slot* const slots = slots_ + set * kWays;
    const std::uint32_t free = ways_behind(slots, Slot(next) - 1, position_mask_, live_);
    return free == 0 ? nullptr : slots + std::countr_zero(free);
  }
  // The slot of two full sets whose position is longest ago.
  Slot* oldest_in(const Place& place, std::uint64_t next) const {
    Slot *const first = slots_ + place.first * kWays, *const second = slots_ + place.second * kWays;
    const Slot from = Slot(next) - 1;
    const std::uint32_t in_first = most_behind(first, from, position_mask_);
    const std::uint32_t in_second = most_behind(second, from, position_mask_);
    Slot* const set = in_first >= in_second ? first : second;
    return set + std::countr_zero(ways_behind(set, from, position_mask_, std::max(in_first, in_second)));
  }

  Slot* room_in(const Place& place, std::uint64_t next) {
    if (Slot* const free = free_in(place.first, next)) return free;
    if (Slot* const free = free_in(place.second, next)) return free;
    for (const std::uint32_t set : {place.first, place.second})
      if (Slot* const moved = move_one(set, next)) return moved;
    return oldest_in(place, next);
  }
  // A slot of a full set whose own other set has room is copied there. Who looks for it meanwhile finds one of the two, or
  // misses.
  Slot* move_one(std::uint32_t set, std::uint64_t next) {
    for (Slot* slot = slots_ + set * kWays; slot != slots_ + (set + 1) * kWays && credit_ >= kLookCost; ++slot) {
      credit_ -= kLookCost;
      Slot* const there = free_in(other(set, *slot), next);
      if (there == nullptr) continue;
      put(there, *slot);
      return slot;
    }
    return nullptr;
  }

  Slot* const slots_;
  const std::uint32_t sets_;
  const std::uint32_t live_;  // a position with fewer tokens behind it is live
  const unsigned position_bits_;
  const Slot position_mask_;
  unsigned credit_ = kMostCredit;
};

}  // namespace toktier::speculative
