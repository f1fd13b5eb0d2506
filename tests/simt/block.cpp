// How the threads of a block take turns and meet. Sentences about those that cannot go on are in report.cpp.
#include "block.h"

#include <sched.h>

#include <algorithm>
#include <new>

#include "report.h"

namespace simt {
namespace {

constexpr tt_u32 INTERLEAVE = 16;  // at most so many accesses to shared words before another thread may go first

Fiber& running() { return const_cast<Fiber&>(static_cast<const Fiber&>(self())); }

}  // namespace

bool Launch::idle(tt_u32 slot) {
  tt_u64 total = 0;
  for (const Slot& each : slots) total += each.progress.load();
  Slot& mine = slots[slot];
  if (mine.seen.load() != total) {
    mine.rounds = 0;
    mine.seen = total;
  }
  if (++mine.rounds >= IDLE_ROUNDS) {
    const auto idles = [&](const Slot& each) { return !each.live || (each.rounds >= IDLE_ROUNDS && each.seen == total); };
    if (std::all_of(slots.begin(), slots.end(), idles)) return false;
  }
  if (slots.size() > 1) sched_yield();
  return true;
}

Block::Block(Launch& launch, tt_u32 slot, tt_u32 index, tt_u64 seed, const Stacks& stacks)
    : launch_(launch), slot_(slot), index_(index), random_(seed, index), warps_((launch.threads + TT_LANES - 1) / TT_LANES),
      live_(launch.threads), until_interleaved_(1 + random_.below(INTERLEAVE)) {
  for (tt_u32 i = 0; i < launch.threads; ++i) {
    Fiber* const fiber = new (stacks.control(i)) Fiber;
    fiber->index = i;
    fiber->threads = launch.threads;
    fiber->block = index;
    fiber->blocks = launch.blocks;
    fiber->owner = this;
    fiber->context.begin(stacks.low(i), stacks.high(i), enter);
    fibers_.push_back(fiber);
  }
  for (tt_u32 w = 0; w < warps_.size(); ++w) {
    const tt_u32 lanes = std::min(TT_LANES, launch.threads - w * TT_LANES);
    warps_[w].running = lanes == TT_LANES ? TT_ALL_LANES : (1u << lanes) - 1;
  }
  ready_ = fibers_;
  yielded_.reserve(launch.threads);
}

Block::~Block() {
  for (Fiber* const fiber : fibers_) {
    fiber->context.end(&launch_);
    fiber->~Fiber();
  }
}

void Block::run() {
  progress();
  launch_.slots[slot_].rounds = 0;
  home_.adopt();
  if (Fiber* const first = choose()) home_.switch_to(first->context);
  progress();
  launch_.slots[slot_].rounds = 0;
}

void Block::enter() {
  Fiber& self = running();
  self.context.arrive();
  Launch& launch = self.owner->launch_;
  launch.body(launch.argument);
  self.owner->end(self);
}

void Block::end(Fiber& self) {
  self.wait.kind = Wait::ENDED;
  --live_;
  progress();
  if (at_barrier_ > 0)
    fail(self, "ends while %u threads, the first of them thread %u, wait at the barrier in %s", at_barrier_, barrier_first_,
         Where(barrier_place_).text);
  Warp& warp = warps_[self.index / TT_LANES];
  const tt_u32 bit = 1u << self.index % TT_LANES;
  warp.running &= ~bit;
  for (tt_u32 open = warp.open; open != 0; open &= open - 1) {
    const Group& group = warp.group[tt_lowest_bit(open)];
    if ((group.lanes & bit) == 0) continue;
    const Fiber& waiting = lane_of(self, tt_lowest_bit(group.arrived));
    fail(self, "ends while lane %u waits for it in %s in %s, lanes 0x%08x", waiting.index % TT_LANES, name_of(group.operation),
         Where(waiting.wait.place).text, group.lanes);
  }
  Fiber* const other = choose();
  self.context.leave_to(other != nullptr ? other->context : home_);
}

Fiber* Block::choose() {
  while (!launch_.failed.load(std::memory_order_relaxed)) {
    if (!ready_.empty()) {
      Fiber*& picked = ready_[random_.below(static_cast<tt_u32>(ready_.size()))];
      Fiber* const fiber = picked;
      picked = ready_.back();
      ready_.pop_back();
      return fiber;
    }
    if (live_ == 0) return nullptr;
    if (yielded_.empty())
      report_waits("its threads wait for each other");
    else if (!launch_.idle(slot_))
      report_waits("no block publishes anything any more");
    ready_.swap(yielded_);
  }
  return nullptr;
}

void Block::next(Fiber& self) {
  Fiber* const other = choose();
  if (other != &self) self.context.switch_to(other != nullptr ? other->context : home_);
}

void Block::barrier(Fiber& self, Place place) {
  if (live_ != launch_.threads) {
    tt_u32 ended = 0;
    while (fibers_[ended]->wait.kind != Wait::ENDED) ++ended;
    fail(self, "waits at the barrier in %s, but %u threads have ended, the first of them thread %u", Where(place).text,
         launch_.threads - live_, ended);
  }
  if (at_barrier_ == 0) {
    barrier_place_ = place;
    barrier_first_ = self.index;
    barrier_order_ = Order::make(launch_.threads);
  } else if (!same(place, barrier_place_)) {
    fail(self, "is at the barrier in %s while thread %u waits at the barrier in %s: a barrier in divergent code",
         Where(place).text, barrier_first_, Where(barrier_place_).text);
  }
  Order* const order = barrier_order_;
  Order::arrive(order);
  self.wait = {Wait::BARRIER, {}, 0, place};
  if (++at_barrier_ == launch_.threads) {
    at_barrier_ = 0;
    progress();
    for (Fiber* const fiber : fibers_) ready_.push_back(fiber);  // memmove() would be seen by ThreadSanitizer
  }
  next(self);
  self.wait.kind = Wait::NOTHING;
  Order::leave(order);
}

tt_u64 Block::meet(Fiber& self, Operation operation, tt_u32 bytes, tt_u32 lanes, tt_u64 value, tt_u32 from, Place place) {
  Warp& warp = warps_[self.index / TT_LANES];
  const tt_u32 lane = self.index % TT_LANES;
  self.wait = {Wait::WARP, operation, lanes, place};
  self.value = value;
  self.from = from;
  if ((lanes >> lane & 1) == 0)
    fail(self, "is left out by the lanes 0x%08x of its own %s in %s", lanes, name_of(operation), Where(place).text);
  if (const tt_u32 missing = lanes & ~warp.running) {
    const tt_u32 absent = tt_lowest_bit(missing);
    const bool exists = self.index - lane + absent < launch_.threads;
    fail(self, "names lane %u in %s in %s, lanes 0x%08x, but that lane %s", absent, name_of(operation), Where(place).text, lanes,
         exists ? "has ended" : "does not exist");
  }
  if ((lanes >> from & 1) == 0)
    fail(self, "reads lane %u in %s in %s, which the lanes 0x%08x leave out", from, name_of(operation), Where(place).text, lanes);

  Group* group = nullptr;
  for (tt_u32 open = warp.open; open != 0; open &= open - 1) {
    Group& other = warp.group[tt_lowest_bit(open)];
    if ((other.lanes >> lane & 1) == 0) continue;
    const Fiber& waiting = lane_of(self, tt_lowest_bit(other.arrived));
    if (other.lanes == lanes && other.operation == operation && other.bytes == bytes) {
      group = &other;
    } else if (other.lanes == lanes) {
      fail(self, "is in %s of %u bytes in %s while lane %u waits for it in %s of %u bytes in %s", name_of(operation), bytes,
           Where(place).text, waiting.index % TT_LANES, name_of(other.operation), other.bytes, Where(waiting.wait.place).text);
    } else if ((lanes & other.arrived) != 0) {
      fail(self, "names lanes 0x%08x in %s in %s while lane %u waits for it in %s in %s with lanes 0x%08x", lanes,
           name_of(operation), Where(place).text, waiting.index % TT_LANES, name_of(other.operation),
           Where(waiting.wait.place).text, other.lanes);
    }
  }
  if (group == nullptr) {
    const tt_u32 free = tt_lowest_bit(~warp.open);  // lanes wait in one group each, so that there is one
    warp.open |= 1u << free;
    group = &warp.group[free];
    Order* const made = operation == Operation::WARP_BARRIER ? Order::make(tt_count_bits(lanes)) : nullptr;
    *group = {lanes, 0, bytes, operation, made};
  }
  group->arrived |= 1u << lane;
  Order* const order = group->order;
  if (operation == Operation::WARP_BARRIER) Order::arrive(order);
  if (group->arrived == lanes) complete(self, warp, *group);
  next(self);
  self.wait.kind = Wait::NOTHING;
  if (operation == Operation::WARP_BARRIER) Order::leave(order);
  return self.value;
}

// All lanes are there: what each of them gets, then they go on in any order.
void Block::complete(const Fiber& self, Warp& warp, Group& group) {
  tt_u64 brought[TT_LANES];
  tt_u64 all = 0;
  for (tt_u32 left = group.lanes; left != 0; left &= left - 1) {
    const tt_u32 lane = tt_lowest_bit(left);
    brought[lane] = lane_of(self, lane).value;
  }
  if (group.operation == Operation::BALLOT) {
    for (tt_u32 left = group.lanes; left != 0; left &= left - 1) all |= brought[tt_lowest_bit(left)] << tt_lowest_bit(left);
  } else if (group.operation == Operation::WARP_MIN) {
    all = TT_ALL_LANES;
    for (tt_u32 left = group.lanes; left != 0; left &= left - 1) all = std::min(all, brought[tt_lowest_bit(left)]);
  }
  const bool common = group.operation == Operation::BALLOT || group.operation == Operation::WARP_MIN;
  for (tt_u32 left = group.lanes; left != 0; left &= left - 1) {
    Fiber& fiber = lane_of(self, tt_lowest_bit(left));
    fiber.value = common ? all : brought[fiber.from];
    ready_.push_back(&fiber);
  }
  warp.open &= ~(1u << (&group - warp.group));
}

void Block::yield(Fiber& self, Place place) {
  self.wait = {Wait::WORD, {}, 0, place};
  yielded_.push_back(&self);
  next(self);
  self.wait.kind = Wait::NOTHING;
}

void Block::interleave(Fiber& self, Place place) {
  if (--until_interleaved_ > 0) return;
  until_interleaved_ = 1 + random_.below(INTERLEAVE);
  yield(self, place);
}

void Block::progress() {
  std::atomic<tt_u64>& mine = launch_.slots[slot_].progress;
  mine.store(mine.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void Block::misuse(Fiber& self, const char* what, Place place) { fail(self, "%s in %s", what, Where(place).text); }

void barrier(Place place) {
  Fiber& self = running();
  self.owner->barrier(self, place);
}
tt_u64 meet(Operation operation, tt_u32 bytes, tt_u32 lanes, tt_u64 value, tt_u32 from, Place place) {
  Fiber& self = running();
  return self.owner->meet(self, operation, bytes, lanes, value, from, place);
}
void yield(Place place) {
  Fiber& self = running();
  self.owner->yield(self, place);
}
void interleave(Place place) {
  Fiber& self = running();
  self.owner->interleave(self, place);
}
void progress() { running().owner->progress(); }
void misuse(const char* what, Place place) {
  Fiber& self = running();
  self.owner->misuse(self, what, place);
}

}  // namespace simt
