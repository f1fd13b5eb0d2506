// Memory straight from the system, so that it begins where a huge page may and a cache that grew gives the old one back.
#include "cache_lines.h"

#include <sys/mman.h>

#include <new>

namespace toktier {

void Unmap::operator()(void* memory) const { ::munmap(memory, size); }

std::unique_ptr<void, Unmap> map_lines(std::size_t size, std::size_t behind, bool populated) {
  constexpr std::size_t page = 1u << 16, huge = 1u << 21;  // a multiple of every system's pages; the usual huge ones
  const std::size_t kept = (size + behind + page - 1) & ~(page - 1), slack = size < huge ? 0 : huge;
  void* const mapped = ::mmap(nullptr, kept + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<std::uint8_t*>(mapped);
  if (slack != 0) {
    const std::size_t before = -reinterpret_cast<std::uintptr_t>(begin) & (huge - 1);
    if (before != 0) ::munmap(begin, before);
    begin += before;
    ::munmap(begin + kept, slack - before);
  }
  std::unique_ptr<void, Unmap> memory(begin, Unmap{kept});
#ifdef MADV_HUGEPAGE
  if (size >= huge) ::madvise(memory.get(), size, MADV_HUGEPAGE);
#endif
#ifdef MADV_POPULATE_WRITE
  if (populated) ::madvise(memory.get(), size, MADV_POPULATE_WRITE);
#endif
  return memory;
}

}  // namespace toktier
