// Stacks and the switch between them. Sanitizers are told of every switch: AddressSanitizer which stack is in use,
// ThreadSanitizer that a fiber is a thread of its own, which no switch orders after another. What does order fibers is an Order.
// This code is never instrumented itself (its atomics and locks would order what CUDA does not): it is compiled without
// -fsanitize and with SIMT_TSAN or SIMT_ASAN (tests/support/simt_build.py). Not here: who runs next (block.h).
#pragma once
#include <cstddef>

#include "device.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#error "the emulator itself is compiled without -fsanitize=, with -DSIMT_TSAN or -DSIMT_ASAN: tests/support/simt_build.py"
#endif

#if !defined(__x86_64__) && !defined(SIMT_UCONTEXT)
#define SIMT_UCONTEXT
#endif
#ifdef SIMT_UCONTEXT
#include <ucontext.h>

#include <memory>
#endif

namespace simt {

// A place where execution can go on: of a fiber, or of the thread that runs a block.
class Context {
 public:
  // Begins with entry() on [low, high) when it is first switched to.
  void begin(void* low, void* high, void (*entry)());
  // The thread that calls.
  void adopt();
  // Goes on at `to`, and returns when something switches back.
  void switch_to(Context& to);
  // As switch_to, but nothing ever switches back.
  [[noreturn]] void leave_to(Context& to);
  // Behind every switch to this context; entry() calls it first.
  void arrive();
  // Of a fiber that does not run and never will: all that it did happens before what follows acquire_from_fibers(launch).
  void end(void* launch);

 private:
  void go_to(Context& to, void** keep_fake_stack);

#ifdef SIMT_UCONTEXT
  std::unique_ptr<ucontext_t> context_;
#else
  void* stack_pointer_ = nullptr;
#endif
  void* tsan_ = nullptr;
  void* asan_fake_stack_ = nullptr;
  const void* stack_low_ = nullptr;
  std::size_t stack_bytes_ = 0;
  Context* came_from_ = nullptr;
};

// Regions of REGION_BYTES for some threads, aligned to it: control block, guard, stack.
class Stacks {
 public:
  explicit Stacks(tt_u32 count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  void* control(tt_u32 i) const;  // COLOUR_BYTES
  void* low(tt_u32 i) const;
  void* high(tt_u32 i) const;
  bool failed() const { return base_ == nullptr; }

 private:
  tt_u8* mapped_ = nullptr;
  tt_u8* base_ = nullptr;
  tt_u64 mapped_bytes_ = 0;
};

// The happens-before of a rendezvous: what its members did before they arrived is visible to all of them behind it, and nothing
// else follows from it. Exists for ThreadSanitizer alone; one object for each time threads meet, since an older one would still
// carry what others did.
class Order {
 public:
  static Order* make(tt_u32 members);
  static void arrive(Order* order);
  static void leave(Order* order);  // the last one frees it

 private:
  tt_u32 members_ = 0;
};

void acquire_from_fibers(void* launch);

}  // namespace simt
