// One block: its threads as fibers, who runs next, and where they meet. What is reported instead of imitated:
// - a barrier that some thread has ended without, or that threads reach at different places of the source;
// - a warp operation by a lane that its own mask leaves out, whose mask names a lane that has ended or does not exist, or that
//   lanes join with other masks or another operation; a shuffle from a lane outside the mask;
// - threads that all wait for each other, and blocks that all wait for a word that nobody writes.
// Of what waits for nothing, any thread may run next, as the seed says, at every meeting and at many accesses to shared words.
// Only barriers and warp barriers order memory, as in CUDA: shuffles and ballots do not.
// Not here: the thread of the operating system that a block has to itself (launch.cpp).
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "fiber.h"
#include "random.h"

namespace simt {

// Of a launch, what all its blocks share.
struct Launch {
  const char* name;
  void (*body)(const void*);
  const void* argument;
  tt_u32 blocks, threads;

  // The first misuse counts; every block stops at its next switch.
  std::atomic<bool> failing{false}, failed{false};
  char report[1024] = {};

  // A block idles while all its threads wait for a word to change. When every resident block has idled for IDLE_ROUNDS since
  // anything was published anywhere, nothing will be.
  struct alignas(64) Slot {
    std::atomic<tt_u64> progress{0};
    std::atomic<tt_u64> seen{0};
    std::atomic<tt_u32> rounds{0};
    std::atomic<bool> live{true};
  };
  std::vector<Slot> slots;
  explicit Launch(tt_u32 resident) : slots(resident) {}
  bool idle(tt_u32 slot);  // false: nothing will change
};
constexpr tt_u32 IDLE_ROUNDS = 1u << 14;

class Block;

struct Wait {
  enum Kind : tt_u32 { NOTHING, BARRIER, WARP, WORD, ENDED } kind = NOTHING;
  Operation operation = Operation::WARP_BARRIER;
  tt_u32 lanes = 0;
  Place place = {nullptr, 0};
  bool somewhere() const { return kind != NOTHING && kind != ENDED; }  // then place says where
};

// The control block of a thread; simt::self() finds it from any address on its stack.
struct Fiber : Thread {
  Block* owner = nullptr;
  Context context;
  Wait wait;
  tt_u64 value = 0;  // what it brings to a warp operation, then what it gets
  tt_u32 from = 0;
};
static_assert(sizeof(Fiber) <= COLOUR_BYTES, "control block");

class Block {
 public:
  Block(Launch& launch, tt_u32 slot, tt_u32 index, tt_u64 seed, const Stacks& stacks);
  ~Block();
  void run();  // returns when all threads have ended, or the launch has failed

  void barrier(Fiber& self, Place place);
  tt_u64 meet(Fiber& self, Operation operation, tt_u32 bytes, tt_u32 lanes, tt_u64 value, tt_u32 from, Place place);
  void yield(Fiber& self, Place place);
  void interleave(Fiber& self, Place place);
  void progress();
  [[noreturn]] void misuse(Fiber& self, const char* what, Place place);

 private:
  // Lanes on their way to one warp operation.
  struct Group {
    tt_u32 lanes, arrived, bytes;
    Operation operation;
    Order* order;
  };
  struct Warp {
    Group group[TT_LANES];
    tt_u32 open = 0;  // a bit for each group in use
    tt_u32 running;   // lanes that exist and have not ended
  };

  static void enter();
  [[noreturn]] void end(Fiber& self);
  Fiber* choose();  // null: nobody; then the block is over
  void next(Fiber& self);
  void complete(const Fiber& self, Warp& warp, Group& group);
  Fiber& lane_of(const Fiber& self, tt_u32 lane) { return *fibers_[self.index / TT_LANES * TT_LANES + lane]; }
  [[noreturn]] void fail(Fiber& self, const char* format, ...) __attribute__((format(printf, 3, 4)));
  void report_waits(const char* what);

  Launch& launch_;
  const tt_u32 slot_, index_;
  Random random_;
  Context home_;
  std::vector<Fiber*> fibers_, ready_, yielded_;
  std::vector<Warp> warps_;
  tt_u32 live_;
  tt_u32 at_barrier_ = 0;
  Place barrier_place_ = {nullptr, 0};
  tt_u32 barrier_first_ = 0;
  Order* barrier_order_ = nullptr;
  tt_u32 until_interleaved_;
};

}  // namespace simt
