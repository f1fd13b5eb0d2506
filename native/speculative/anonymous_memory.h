// Zeroed memory straight from the kernel, for tables that are made once and dropped whole. It goes back when it is dropped, and
// with it what it held: nothing of one scope is left in a heap that serves another. Core dumps leave it out. Pages that nobody
// touches take no memory.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

namespace toktier::speculative {

class AnonymousMemory {
 public:
  explicit AnonymousMemory(std::size_t bytes) : bytes_(bytes) {
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = memory;
    // Both are wishes; without large pages every look-up of a large table misses the address cache, too.
    if (bytes >= kLargePagesFrom) madvise(memory_, bytes_, MADV_HUGEPAGE);
    madvise(memory_, bytes_, MADV_DONTDUMP);
  }
  ~AnonymousMemory() { munmap(memory_, bytes_); }
  AnonymousMemory(const AnonymousMemory&) = delete;
  AnonymousMemory& operator=(const AnonymousMemory&) = delete;

  void* data() const { return memory_; }

 private:
  static constexpr std::size_t kLargePagesFrom = std::size_t(4) << 20;  // below, half of a large page could stay unused
  void* memory_ = nullptr;
  std::size_t bytes_;
};

}  // namespace toktier::speculative
