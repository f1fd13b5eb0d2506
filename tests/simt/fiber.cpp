// Stacks, the switch between them, and what each sanitizer must be told; the only file that knows processors and sanitizers.
#include "fiber.h"

#include <sys/mman.h>

#include <cstdlib>

#ifdef SIMT_TSAN
#include <sanitizer/tsan_interface.h>

#include <atomic>
#endif
#ifdef SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Callee-saved registers go to the stack that is left, its pointer to *save. Always called from one place, so that the processor
// foresees where the return leads. Control words of floating point are not kept: kernels have integers only.
#ifndef SIMT_UCONTEXT
extern "C" void simt_switch_stacks(void** save, void* to) __attribute__((visibility("hidden")));
__asm__(R"(
  .text
  .p2align 4
  .globl simt_switch_stacks
  .hidden simt_switch_stacks
  .type simt_switch_stacks, @function
simt_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  retq
  .size simt_switch_stacks, . - simt_switch_stacks
)");
#endif

namespace simt {
namespace {

constexpr tt_u64 GUARD_BEGIN = 1u << 16, STACK_BEGIN = 1u << 17;  // in a region; multiples of any page
static_assert(COLOURS * COLOUR_BYTES <= GUARD_BEGIN && STACK_BEGIN < REGION_BYTES / 2, "regions");

#ifdef SIMT_TSAN
// ThreadSanitizer gives the number of a fiber that it has forgotten to a new one, and whoever is ordered after the new one is
// then taken to be ordered after the old one too. Numbers are kept for 3 blocks, so that a race with a block that ended before is
// still seen; each costs a megabyte.
constexpr std::size_t FIBERS_KEPT = 3 * 128;

std::atomic<void*> kept[FIBERS_KEPT];
std::atomic<std::size_t> ended{0};

void destroy_later(void* fiber) {
  if (void* const oldest = kept[ended++ % FIBERS_KEPT].exchange(fiber)) __tsan_destroy_fiber(oldest);
}
#endif

tt_u64 colour(const void* region) { return reinterpret_cast<tt_u64>(region) / REGION_BYTES % COLOURS * COLOUR_BYTES; }

}  // namespace

void Context::begin(void* low, void* high, void (*entry)()) {
  stack_low_ = low;
  stack_bytes_ = static_cast<std::size_t>(static_cast<tt_u8*>(high) - static_cast<tt_u8*>(low));
  asan_fake_stack_ = nullptr;
#ifdef SIMT_UCONTEXT
  context_ = std::make_unique<ucontext_t>();
  getcontext(context_.get());
  context_->uc_stack.ss_sp = low;
  context_->uc_stack.ss_size = stack_bytes_;
  makecontext(context_.get(), entry, 0);
#else
  // Six registers, where to return to, and the return address of entry() itself: 8 modulo 16 there, as behind a call.
  void** top = static_cast<void**>(high);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  stack_pointer_ = top;
#endif
#ifdef SIMT_TSAN
  tsan_ = __tsan_create_fiber(0);
#endif
}

void Context::adopt() {
#ifdef SIMT_UCONTEXT
  context_ = std::make_unique<ucontext_t>();
#endif
#ifdef SIMT_TSAN
  tsan_ = __tsan_get_current_fiber();
#endif
}

void Context::go_to(Context& to, [[maybe_unused]] void** keep_fake_stack) {
  to.came_from_ = this;
#ifdef SIMT_ASAN
  __sanitizer_start_switch_fiber(keep_fake_stack, to.stack_low_, to.stack_bytes_);
#endif
#ifdef SIMT_TSAN
  __tsan_switch_to_fiber(to.tsan_, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef SIMT_UCONTEXT
  swapcontext(context_.get(), to.context_.get());
#else
  simt_switch_stacks(&stack_pointer_, to.stack_pointer_);
#endif
}

void Context::switch_to(Context& to) {
  go_to(to, &asan_fake_stack_);
  arrive();
}

void Context::leave_to(Context& to) {
  go_to(to, nullptr);
  std::abort();  // nothing switches to what has been left
}

void Context::arrive() {
#ifdef SIMT_ASAN
  // Whoever came from a stack that nobody told of, a thread of the operating system, gets its bounds here.
  __sanitizer_finish_switch_fiber(asan_fake_stack_, &came_from_->stack_low_, &came_from_->stack_bytes_);
#endif
}

void Context::end([[maybe_unused]] void* launch) {
#ifdef SIMT_TSAN
  void* const caller = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_, __tsan_switch_to_fiber_no_sync);
  __tsan_release(launch);
  __tsan_switch_to_fiber(caller, __tsan_switch_to_fiber_no_sync);
  destroy_later(tsan_);
#endif
}

Stacks::Stacks(tt_u32 count) : mapped_bytes_((static_cast<tt_u64>(count) + 1) * REGION_BYTES) {
  void* const mapped = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return;
  mapped_ = static_cast<tt_u8*>(mapped);
  base_ = mapped_ + (REGION_BYTES - reinterpret_cast<tt_u64>(mapped_) % REGION_BYTES) % REGION_BYTES;
  for (tt_u32 i = 0; i < count; ++i) {
    if (mprotect(base_ + i * REGION_BYTES + GUARD_BEGIN, STACK_BEGIN - GUARD_BEGIN, PROT_NONE) != 0) {
      base_ = nullptr;
      break;
    }
  }
}

Stacks::~Stacks() {
  if (mapped_ == nullptr) return;
#ifdef SIMT_ASAN
  __asan_unpoison_memory_region(mapped_, mapped_bytes_);  // frames that were left for good
#endif
  munmap(mapped_, mapped_bytes_);
}

void* Stacks::control(tt_u32 i) const { return base_ + i * REGION_BYTES + colour(base_ + i * REGION_BYTES); }
void* Stacks::low(tt_u32 i) const { return base_ + i * REGION_BYTES + STACK_BEGIN; }
void* Stacks::high(tt_u32 i) const { return base_ + (i + 1) * REGION_BYTES - colour(base_ + i * REGION_BYTES); }

#ifdef SIMT_TSAN

Order* Order::make(tt_u32 members) {
  Order* const order = static_cast<Order*>(std::malloc(sizeof(Order)));  // freed, it forgets its clock
  if (order == nullptr) std::abort();
  order->members_ = members;
  return order;
}
void Order::arrive(Order* order) { __tsan_release(order); }
void Order::leave(Order* order) {
  __tsan_acquire(order);
  if (--order->members_ == 0) std::free(order);
}
void acquire_from_fibers(void* launch) { __tsan_acquire(launch); }

#else

Order* Order::make(tt_u32) { return nullptr; }
void Order::arrive(Order*) {}
void Order::leave(Order*) {}
void acquire_from_fibers(void*) {}

#endif

}  // namespace simt
