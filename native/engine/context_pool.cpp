// ContextPool: a fixed row of slots, each empty or holding an idle context, exchanged atomically. Threads begin at different
// slots, so that a thread mostly gets the context back whose caches it filled. Nothing is ever locked, so a fork at any moment
// leaves a usable row; there are never more contexts than calls that ran at once.
#include <atomic>
#include <cstdint>

#include "engine.h"

namespace toktier {

struct ContextPool::Slots {
  static constexpr std::size_t count = 64;  // more idle contexts than this are thrown away
  struct alignas(64) Slot {
    std::atomic<Context*> context{nullptr};
  };
  Slot slots[count];
  static_assert(count == 64);

  // Where a thread keeps its own variables tells threads apart well enough: a collision costs a look at the next slot.
  static std::size_t first() {
    return static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer()) * 0x9E3779B97F4A7C15ull >> 58);
  }
};

ContextPool::ContextPool(std::shared_ptr<const Program> program, Level level, std::uint32_t cache_lines)
    : program_(std::move(program)), level_(level), cache_lines_(cache_lines), slots_(std::make_unique<Slots>()) {}

ContextPool::~ContextPool() {
  for (Slots::Slot& slot : slots_->slots) delete slot.context.load();
}

ContextPool::Lease ContextPool::acquire() {
  const std::size_t first = Slots::first();
  for (std::size_t i = 0; i < Slots::count; ++i) {
    std::atomic<Context*>& slot = slots_->slots[(first + i) % Slots::count].context;
    if (slot.load(std::memory_order_relaxed) == nullptr) continue;
    if (Context* context = slot.exchange(nullptr, std::memory_order_acquire))
      return Lease(this, std::unique_ptr<Context>(context));
  }
  return Lease(this, std::make_unique<Context>(program_, level_, cache_lines_));
}

ContextPool::Lease::Lease(ContextPool* pool, std::unique_ptr<Context> context) : pool_(pool), context_(std::move(context)) {}
ContextPool::Lease::Lease(Lease&& other) noexcept = default;

ContextPool::Lease::~Lease() {
  if (context_ == nullptr) return;
  const std::size_t first = Slots::first();
  for (std::size_t i = 0; i < Slots::count; ++i) {
    std::atomic<Context*>& slot = pool_->slots_->slots[(first + i) % Slots::count].context;
    Context* empty = nullptr;
    if (slot.load(std::memory_order_relaxed) == nullptr &&
        slot.compare_exchange_strong(empty, context_.get(), std::memory_order_release)) {
      context_.release();
      return;
    }
  }
}

}  // namespace toktier
