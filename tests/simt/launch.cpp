// A grid: as many threads of the operating system as blocks may be resident, each taking the next block until none is left.
#include "launch.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <numeric>
#include <vector>

#include "block.h"
#include "shared_memory.h"

namespace simt {
namespace {

constexpr tt_u32 MAX_THREADS = 1024;  // of a block, on every device
constexpr std::size_t THREAD_STACK = 1u << 20;  // of the threads that run blocks; holds the shared variables too
constexpr std::size_t STACKS_KEPT = 8;

#ifdef SIMT_TSAN
// ThreadSanitizer takes memory that blocks use one after the other for memory that they share: each gets its own.
constexpr bool FRESH_MEMORY = true;
#else
constexpr bool FRESH_MEMORY = false;
#endif

#ifdef SIMT_ASAN
// All blocks of a process have the same shared variables (simt.h).
constexpr bool ONE_RESIDENT = true;
#else
constexpr bool ONE_RESIDENT = false;
#endif

// Stacks of TT_TILE_THREADS or fewer threads are used again: a launch costs two threads, not 256 mappings.
class StackStore {
 public:
  std::unique_ptr<Stacks> take(tt_u32 threads) {
    if (!FRESH_MEMORY && threads <= KEPT_THREADS) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!kept_.empty()) {
        std::unique_ptr<Stacks> stacks = std::move(kept_.back());
        kept_.pop_back();
        return stacks;
      }
      threads = KEPT_THREADS;
    }
    return std::make_unique<Stacks>(threads);
  }
  void give_back(std::unique_ptr<Stacks> stacks, tt_u32 threads) {
    if (FRESH_MEMORY || threads > KEPT_THREADS) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (kept_.size() < STACKS_KEPT) kept_.push_back(std::move(stacks));
  }

 private:
  static constexpr tt_u32 KEPT_THREADS = 128;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Stacks>> kept_;
};

StackStore& stack_store() {
  static StackStore* const store = new StackStore;  // outlives every thread
  return *store;
}

struct Grid {
  Launch launch;
  tt_u64 seed;
  std::vector<tt_u32> order;
  std::atomic<tt_u32> begun{0};
  std::atomic<bool> no_memory{false};
};

// Runs a function in a thread of its own, to the end.
template <typename F>
class OsThread {
 public:
  explicit OsThread(F function) : function_(std::move(function)) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, THREAD_STACK);
    const auto start = [](void* self) -> void* {
      static_cast<OsThread*>(self)->function_();
      return nullptr;
    };
    started_ = pthread_create(&thread_, &attributes, start, this) == 0;
    pthread_attr_destroy(&attributes);
  }
  ~OsThread() {
    if (started_) pthread_join(thread_, nullptr);
  }
  OsThread(const OsThread&) = delete;
  OsThread& operator=(const OsThread&) = delete;
  bool started() const { return started_; }

 private:
  F function_;
  pthread_t thread_;
  bool started_;
};

void run_block(Grid& grid, tt_u32 slot, tt_u32 index, const Stacks& stacks, const SharedMemory& shared) {
  shared.poison(grid.seed ^ mix(index + 1));
  Block(grid.launch, slot, index, grid.seed, stacks).run();
}

void run_slot(Grid& grid, tt_u32 slot) {
  std::unique_ptr<Stacks> stacks;
  const SharedMemory shared = SharedMemory::find();
  while (!grid.launch.failed) {
    const tt_u32 next = grid.begun++;
    if (next >= grid.launch.blocks) break;
    if (FRESH_MEMORY || stacks == nullptr) stacks = stack_store().take(grid.launch.threads);
    if (stacks->failed()) {
      grid.no_memory = grid.launch.failed = true;
      break;
    }
    if (!FRESH_MEMORY) {
      run_block(grid, slot, grid.order[next], *stacks, shared);
      continue;
    }
    const auto block = [&] { run_block(grid, slot, grid.order[next], *stacks, SharedMemory::find()); };
    if (!OsThread(block).started()) grid.no_memory = grid.launch.failed = true;
    stacks = nullptr;
  }
  grid.launch.slots[slot].live = false;
  // Left in the middle, stacks hold frames that nobody will end.
  if (stacks != nullptr && !grid.launch.failed) stack_store().give_back(std::move(stacks), grid.launch.threads);
}

}  // namespace
}  // namespace simt

int simt_run(const char* name, void (*body)(const void*), const void* argument, std::uint32_t blocks, std::uint32_t threads,
             const SimtOptions& options, char* report, std::size_t report_bytes) {
  using namespace simt;
  if (blocks == 0 || threads == 0 || threads > MAX_THREADS || options.resident_blocks == 0) {
    std::snprintf(report, report_bytes, "kernel %s cannot be launched with %u blocks of %u threads, %u of them at once", name,
                  blocks, threads, options.resident_blocks);
    return SIMT_REFUSED;
  }
  static std::mutex alone;
  const std::unique_lock<std::mutex> lock = ONE_RESIDENT ? std::unique_lock(alone) : std::unique_lock<std::mutex>();
  const tt_u32 resident = ONE_RESIDENT ? 1 : std::min(options.resident_blocks, blocks);
  Grid grid{Launch(resident), options.seed, std::vector<tt_u32>(blocks)};
  grid.launch.name = name;
  grid.launch.body = body;
  grid.launch.argument = argument;
  grid.launch.blocks = blocks;
  grid.launch.threads = threads;
  std::iota(grid.order.begin(), grid.order.end(), 0);
  if (options.shuffled_blocks) {
    Random random(options.seed, blocks);
    for (tt_u32 i = blocks; i > 1; --i) std::swap(grid.order[i - 1], grid.order[random.below(i)]);
  }
  {
    const auto starter = [&](tt_u32 slot) { return [&grid, slot] { run_slot(grid, slot); }; };
    std::vector<std::unique_ptr<OsThread<decltype(starter(0))>>> threads_of_slots;
    for (tt_u32 slot = 0; slot < resident; ++slot) {
      threads_of_slots.push_back(std::make_unique<OsThread<decltype(starter(0))>>(starter(slot)));
      if (!threads_of_slots.back()->started()) grid.no_memory = grid.launch.failed = true;
    }
  }
  acquire_from_fibers(&grid.launch);
  if (grid.no_memory) {
    std::snprintf(report, report_bytes, "kernel %s: no memory for %u threads of %u blocks at once", name, threads, resident);
    return SIMT_REFUSED;
  }
  std::snprintf(report, report_bytes, "%s", grid.launch.report);
  return grid.launch.failed ? SIMT_MISUSE : SIMT_OK;
}
