// Threads that take one text after the other.
#include "cpu_share.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace toktier::gpu {

namespace {

constexpr std::size_t kWorthAThread = 1 << 16;  // bytes: below it, starting a thread costs more than it brings

struct Work {
  Work(const std::vector<CpuText>& given, bool is_plain) : texts(given), plain(is_plain), ids(given.size()) {}

  const std::vector<CpuText>& texts;
  const bool plain;
  std::vector<std::vector<std::uint32_t>> ids;
  std::atomic<std::size_t> next{0};
  std::mutex guard;  // of the members below
  std::size_t failed = SIZE_MAX;
  std::exception_ptr error;

  void run(Context& context) {
    std::size_t i = 0;
    try {
      while ((i = next.fetch_add(1)) < texts.size()) {
        EncodeOptions options;
        options.plain = plain;
        options.post_process = false;
        options.continued = texts[i].continued;
        ids[i].resize(context.prepare(texts[i].text, options));
        context.write(ids[i].data());
      }
    } catch (...) {
      const std::lock_guard<std::mutex> lock(guard);
      if (i < failed) {
        failed = i;
        error = std::current_exception();
      }
    }
  }
};

}  // namespace

std::vector<std::vector<std::uint32_t>> encode_by_cpu(ContextPool& contexts, const std::vector<CpuText>& texts, bool plain,
                                                      unsigned workers) {
  if (texts.empty()) return {};
  Work work{texts, plain};
  const ContextPool::Lease context = contexts.acquire();
  std::size_t bytes = 0;
  for (const CpuText& text : texts) bytes += text.text.size();
  workers = unsigned(std::min({std::size_t(workers), texts.size(), 1 + bytes / kWorthAThread}));
  std::vector<std::thread> others;
  try {
    others.reserve(workers);
    for (unsigned k = 1; k < workers; ++k)
      others.emplace_back([&work, &contexts] {
        try {
          const ContextPool::Lease of_thread = contexts.acquire();
          work.run(*of_thread);
        } catch (const std::exception&) {
          // No memory for another context.
        }
      });
  } catch (const std::exception&) {
    // The host gives no more threads.
  }
  work.run(*context);
  for (std::thread& thread : others) thread.join();
  if (work.error) throw ItemError{texts[work.failed].item, work.error};
  return std::move(work.ids);
}

}  // namespace toktier::gpu
