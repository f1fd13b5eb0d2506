// Memory and launches of one run. A buffer that a sanitizer does not watch has guards of its own, looked at after every kernel.
#include "pipeline.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "abi.h"
#include "gpu/image.h"
#include "launch.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace {

enum class Work { TILES, DOCUMENTS, QUEUE };

struct Step {
  const char* name;
  Work work;
};
constexpr Step steps[] = {
#define TT_X(name, work) {#name, Work::work},
    TT_KERNELS(TT_X)
#undef TT_X
};

constexpr std::size_t guard_bytes = 256;  // a multiple of every alignment that tables and buffers have
constexpr std::uint8_t guard_value = 0xA5;
constexpr std::uint32_t queue_blocks = 3;  // fewer than there is work for: a queue is emptied by any number of blocks

// Memory of a buffer: zero, or whatever the seed makes of it, between two guards.
class Memory {
 public:
  Memory(const char* name, std::size_t bytes) : name_(name), bytes_(bytes) {
    void* base = nullptr;
    if (posix_memalign(&base, guard_bytes, bytes + 2 * guard_bytes) != 0) std::abort();
    base_.reset(static_cast<std::uint8_t*>(base));
    std::memset(base_.get(), guard_value, guard_bytes);
    std::memset(base_.get() + guard_bytes + bytes, guard_value, guard_bytes);
#if defined(__SANITIZE_ADDRESS__)
    __asan_poison_memory_region(base_.get(), guard_bytes);
    __asan_poison_memory_region(base_.get() + guard_bytes + bytes, guard_bytes);
#endif
  }
  std::uint8_t* data() const { return base_.get() + guard_bytes; }
  std::size_t bytes() const { return bytes_; }
  const char* name() const { return name_; }

  void poison(std::uint64_t& seed) const {
    for (std::size_t i = 0; i < bytes_; ++i) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      data()[i] = static_cast<std::uint8_t>(seed >> 56);
    }
  }
  bool intact() const {
#if !defined(__SANITIZE_ADDRESS__)
    for (std::size_t i = 0; i < guard_bytes; ++i)
      if (base_.get()[i] != guard_value || data()[bytes_ + i] != guard_value) return false;
#endif
    return true;
  }

 private:
  struct Free {
    void operator()(std::uint8_t* base) const { std::free(base); }
  };
  const char* name_;
  std::size_t bytes_;
  std::unique_ptr<std::uint8_t, Free> base_;
};

class Pipeline {
 public:
  explicit Pipeline(const PipelineInput& in) : in_(in), seed_(in.seed) {
    TtGpuParams& p = params_;
    std::memset(&p, 0, sizeof p);
    p.n = in.n;
    p.n_docs = in.n_docs;
    p.n_words = (in.n + TT_WORD_BYTES - 1) / TT_WORD_BYTES;
    p.n_tiles = (in.n + TT_TILE_BYTES - 1) / TT_TILE_BYTES;
    p.plain = in.plain;
    const std::uint8_t* image = copy("image", in.image, in.image_bytes, 0);
    p.tables = toktier::gpu::tables_at(image, reinterpret_cast<std::uint64_t>(image));
    buffers();
  }

  // True where every kernel ran to its end and no guard was touched.
  bool run(char* report, std::size_t report_bytes) {
    const SimtOptions options{in_.seed, in_.resident_blocks, in_.shuffled_blocks != 0};
    for (const Step& step : steps) {
      const bool of_offsets = std::strcmp(step.name, "tt_characters") == 0 || std::strcmp(step.name, "tt_offsets") == 0;
      const std::uint32_t blocks = blocks_of(step.work);
      if (blocks != 0 && (in_.offsets != 0 || !of_offsets)) {
        const SimtKernel* kernel = simt_kernel(step.name);
        if (kernel == nullptr) return say(report, report_bytes, step.name, "is no kernel");
        if (simt_launch(*kernel, blocks, TT_TILE_THREADS, params_, options, report, report_bytes) != SIMT_OK) return false;
      }
      for (const Memory& memory : memory_)
        if (!memory.intact()) return say(report, report_bytes, step.name, std::string("writes outside of ") + memory.name());
      if (std::strcmp(step.name, in_.last) == 0) break;
    }
    return true;
  }

  void take(const PipelineOutput& out) const {
    const TtGpuBuffers& b = params_.buffers;
    const std::size_t words = params_.n_words, n = in_.n;
    take(out.doc_flags, b.doc_flags, in_.n_docs);
    take(out.bounds, b.bounds, words + 1);
    take(out.dropped, b.dropped, words);
    take(out.covered, b.covered, words);
    take(out.tokens, b.tokens, words + 1);
    take(out.token_id, b.token_id, n);
    take(out.control, b.control, TT_CONTROL_WORDS);
    take(out.ids, b.ids, n);
    take(out.row, b.row, std::size_t{in_.n_docs} + 1);
    take(out.offset_begin, b.offset_begin, n);
    take(out.offset_end, b.offset_end, n);
  }

 private:
  void buffers() {
    TtGpuBuffers& b = params_.buffers;
    const std::size_t n = in_.n, words = params_.n_words, tiles = params_.n_tiles, docs = in_.n_docs;
    b.text = copy("text", in_.text, n, TT_TEXT_PADDING);
    b.doc_begin = reinterpret_cast<const tt_u32*>(
        copy("doc_begin", reinterpret_cast<const std::uint8_t*>(in_.doc_begin), (docs + 1) * sizeof(tt_u32), 0));
    zeroed(b.control, "control", TT_CONTROL_WORDS);
    zeroed(b.doc_flags, "doc_flags", docs);
    zeroed(b.edges, "edges", words + 1);
    zeroed(b.covered, "covered", words);
    zeroed(b.tokens, "tokens", words + 1);
    zeroed(b.look_right, "look_right", tiles);
    zeroed(b.look_left, "look_left", tiles);
    zeroed(b.look_ids, "look_ids", tiles);
    zeroed(b.look_characters, "look_characters", tiles);
    poisoned(b.bounds, "bounds", words + 1);
    poisoned(b.dropped, "dropped", words);
    poisoned(b.right_state, "right_state", words);
    poisoned(b.token_id, "token_id", n);
    poisoned(b.queue[TT_QUEUE_LONG], "queue of long pieces", n / (TT_THREAD_PIECE + 1) + 1);
    poisoned(b.queue[TT_QUEUE_THREAD], "queue of threads", n / 2 + 1);
    poisoned(b.queue[TT_QUEUE_WARP], "queue of warps", n / (TT_THREAD_PIECE + 1) + 1);
    poisoned(b.queue[TT_QUEUE_BLOCK], "queue of blocks", n / (TT_WARP_PIECE + 1) + 1);
    poisoned(b.rank, "rank", words + 1);
    poisoned(b.ids, "ids", n);
    poisoned(b.row, "row", docs + 1);
    if (in_.offsets == 0) return;
    poisoned(b.characters, "characters", words + 1);
    poisoned(b.offset_begin, "offset_begin", n);
    poisoned(b.offset_end, "offset_end", n);
  }

  const std::uint8_t* copy(const char* name, const std::uint8_t* from, std::size_t bytes, std::size_t zeros) {
    const Memory& memory = memory_.emplace_back(name, bytes + zeros);
    if (bytes != 0) std::memcpy(memory.data(), from, bytes);
    std::memset(memory.data() + bytes, 0, zeros);
    return memory.data();
  }
  template <typename T>
  void zeroed(T*& field, const char* name, std::size_t n) {
    const Memory& memory = memory_.emplace_back(name, n * sizeof(T));
    std::memset(memory.data(), 0, memory.bytes());
    field = reinterpret_cast<T*>(memory.data());
  }
  template <typename T>
  void poisoned(T*& field, const char* name, std::size_t n) {
    const Memory& memory = memory_.emplace_back(name, n * sizeof(T));
    memory.poison(seed_);
    field = reinterpret_cast<T*>(memory.data());
  }
  template <typename T>
  static void take(T* to, const T* from, std::size_t n) {
    if (to != nullptr && from != nullptr && n != 0) std::memcpy(to, from, n * sizeof(T));
  }

  std::uint32_t blocks_of(Work work) const {
    switch (work) {
      case Work::TILES:
        return params_.n_tiles;
      case Work::DOCUMENTS:
        return in_.n_docs / TT_TILE_THREADS + 1;
      default:
        return in_.n == 0 ? 0 : queue_blocks;
    }
  }

  static bool say(char* report, std::size_t report_bytes, const char* kernel, const std::string& what) {
    std::snprintf(report, report_bytes, "%s %s", kernel, what.c_str());
    return false;
  }

  const PipelineInput& in_;
  std::uint64_t seed_;
  TtGpuParams params_;
  std::vector<Memory> memory_;
};

}  // namespace

int pipeline_run(const PipelineInput* input, const PipelineOutput* output, char* report, std::uint64_t report_bytes) {
  if (report_bytes != 0) report[0] = 0;
  Pipeline pipeline(*input);
  if (!pipeline.run(report, report_bytes)) return 1;
  pipeline.take(*output);
  return 0;
}
