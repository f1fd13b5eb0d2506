// The kernels behind the boundary step on masks that no boundary step writes, and on bytes that are no text. To be run under
// AddressSanitizer: every buffer is an allocation of its own, of exactly the size that abi.h says.
// Arguments: a file with a device image, and how many seeds.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "abi.h"
#include "gpu/image.h"
#include "launch.h"

namespace {

using Random = std::mt19937_64;

// Words in which few, half or most of the bits are set.
void fill(Random& random, tt_u32* words, std::size_t count) {
  const auto kind = random() % 3;
  for (std::size_t i = 0; i < count; ++i) {
    const auto a = static_cast<tt_u32>(random()), b = static_cast<tt_u32>(random()), c = static_cast<tt_u32>(random());
    words[i] = kind == 0 ? a & b & c & static_cast<tt_u32>(random()) : kind == 1 ? a : a | b | c;
  }
  if (random() % 2 == 0)  // a long piece
    std::memset(words + count / 4, 0, count / 2 * sizeof *words);
}

class Run {
 public:
  Run(const std::vector<std::uint8_t>& image, std::uint64_t seed) : random_(seed), seed_(seed) {
    TtGpuParams& p = params_;
    p.n = static_cast<tt_u32>(1 + random_() % 40'000);
    p.n_words = (p.n + 31) / 32;
    p.n_tiles = (p.n + TT_TILE_BYTES - 1) / TT_TILE_BYTES;
    p.n_docs = static_cast<tt_u32>(1 + random_() % 5);
    auto* const tables = static_cast<std::uint8_t*>(allocate(image.size()));
    std::memcpy(tables, image.data(), image.size());
    p.tables = toktier::gpu::tables_at(tables, reinterpret_cast<std::uint64_t>(tables));
    if (random_() % 4 == 0) p.tables.join_bytes = nullptr;
    TtGpuBuffers& b = p.buffers;
    auto* const text = static_cast<tt_u8*>(allocate(p.n + TT_TEXT_PADDING));
    const bool few = random_() % 2 == 0;
    for (tt_u32 i = 0; i < p.n; ++i) text[i] = static_cast<tt_u8>(few ? 'k' + random_() % 3 : random_());
    b.text = text;
    auto* const begins = words<tt_u32>(p.n_docs + 1);
    for (tt_u32 d = 1; d <= p.n_docs; ++d) begins[d] = begins[d - 1] + static_cast<tt_u32>(random_() % (p.n - begins[d - 1] + 1));
    begins[p.n_docs] = p.n;
    b.doc_begin = begins;
    b.control = words<tt_u32>(TT_CONTROL_WORDS);
    b.doc_flags = words<tt_u32>(p.n_docs);
    b.covered = words<tt_u32>(p.n_words);
    b.tokens = words<tt_u32>(p.n_words + 1);
    b.look_ids = words<tt_u32>(p.n_tiles);
    b.look_characters = words<tt_u32>(p.n_tiles);
    b.bounds = words<tt_u32>(p.n_words + 1);
    b.dropped = words<tt_u32>(p.n_words);
    b.token_id = words<tt_u32>(p.n);
    b.queue[TT_QUEUE_LONG] = words<tt_u64>(p.n / (TT_THREAD_PIECE + 1) + 1);
    b.queue[TT_QUEUE_THREAD] = words<tt_u64>(p.n / 2 + 1);
    b.queue[TT_QUEUE_WARP] = words<tt_u64>(p.n / (TT_THREAD_PIECE + 1) + 1);
    b.queue[TT_QUEUE_BLOCK] = words<tt_u64>(p.n / (TT_WARP_PIECE + 1) + 1);
    b.rank = words<tt_u32>(p.n_words + 1);
    b.characters = words<tt_u32>(p.n_words + 1);
    b.ids = words<tt_u32>(p.n);
    b.row = words<tt_u32>(p.n_docs + 1);
    b.offset_begin = words<tt_u32>(p.n);
    b.offset_end = words<tt_u32>(p.n);
    fill(random_, b.bounds, p.n_words + 1);
    fill(random_, b.dropped, p.n_words);
    if (random_() % 2 == 0) std::memset(b.dropped, 0, p.n_words * sizeof(tt_u32));
    fill(random_, b.covered, p.n_words);
    if (random_() % 2 == 0) std::memset(b.covered, 0, p.n_words * sizeof(tt_u32));
    if (random_() % 2 == 0) fill(random_, b.tokens, p.n_words + 1);
  }

  bool done() {
    static constexpr const char* kernels[] = {"tt_pieces",      "tt_spans",  "tt_merge_thread", "tt_merge_warp", "tt_merge_block",
                                              "tt_gather",      "tt_rows",   "tt_characters",   "tt_offsets"};
    SimtOptions options;
    options.seed = seed_;
    char report[1024] = "";
    for (const char* name : kernels)
      if (simt_launch(*simt_kernel(name), params_.n_tiles, TT_TILE_THREADS, params_, options, report, sizeof report) != SIMT_OK) {
        std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed_), report);
        return false;
      }
    return true;
  }

 private:
  void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 256, bytes) != 0) std::abort();
    std::memset(memory, 0, bytes);
    memory_.emplace_back(memory, std::free);
    return memory;
  }
  template <typename T>
  T* words(std::size_t count) {
    return static_cast<T*>(allocate(count * sizeof(T)));
  }

  Random random_;
  std::uint64_t seed_;
  TtGpuParams params_{};
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::vector<std::uint8_t> image;
  std::FILE* const file = std::fopen(argv[1], "rb");
  if (file == nullptr) return 2;
  std::uint8_t block[4096];
  for (std::size_t got; (got = std::fread(block, 1, sizeof block, file)) > 0;) image.insert(image.end(), block, block + got);
  std::fclose(file);
  const auto seeds = static_cast<std::uint64_t>(std::atoi(argv[2]));
  for (std::uint64_t seed = 1; seed <= seeds; ++seed)
    if (!Run(image, seed).done()) return 1;
  std::printf("%llu runs\n", static_cast<unsigned long long>(seeds));
  return 0;
}
