// One array behind the other.
#include "buffers.h"

namespace toktier::gpu {

namespace {

class Arena {
 public:
  explicit Arena(std::uint64_t base) : base_(base) {}
  std::size_t used() const { return used_; }
  void align(std::size_t to) { used_ = (used_ + to - 1) / to * to; }
  template <typename T>
  void put(T*& array, std::size_t count) {
    align(alignof(T));
    array = reinterpret_cast<T*>(base_ + used_);
    used_ += count * sizeof(T);
  }

 private:
  const std::uint64_t base_;
  std::size_t used_ = 0;
};

constexpr std::size_t kLine = 256;  // bytes; what the driver aligns memory to

}  // namespace

PlacedBuffers place_buffers(std::uint64_t base, std::size_t n, std::size_t n_docs) {
  const std::size_t words = text_words(n), tiles = text_tiles(n);
  PlacedBuffers p{};
  TtGpuBuffers& b = p.buffers;
  Arena arena(base);
  const auto put = [&](auto*& array, std::size_t count) {
    arena.align(kLine);
    arena.put(array, count);
  };
  arena.put(b.text, n + TT_TEXT_PADDING);
  put(b.doc_begin, n_docs + 1);
  p.doc_begin = std::size_t(reinterpret_cast<std::uint64_t>(b.doc_begin) - base);
  p.input_bytes = arena.used();

  put(b.control, TT_CONTROL_WORDS);
  p.zero_begin = std::size_t(reinterpret_cast<std::uint64_t>(b.control) - base);
  arena.put(b.doc_flags, n_docs);
  p.flags_bytes = arena.used() - p.zero_begin;
  put(b.edges, words + 1);
  put(b.covered, words);
  put(b.tokens, words + 1);
  put(b.look_right, tiles);
  put(b.look_left, tiles);
  put(b.look_ids, tiles);
  p.zero_bytes = arena.used() - p.zero_begin;

  put(b.bounds, words + 1);
  put(b.dropped, words);
  put(b.right_state, words);
  put(b.token_id, n);
  put(b.queue[TT_QUEUE_LONG], n / (TT_THREAD_PIECE + 1) + 1);
  put(b.queue[TT_QUEUE_THREAD], n / 2 + 1);
  put(b.queue[TT_QUEUE_WARP], n / (TT_THREAD_PIECE + 1) + 1);
  put(b.queue[TT_QUEUE_BLOCK], n / (TT_WARP_PIECE + 1) + 1);
  put(b.rank, words + 1);
  put(b.row, n_docs + 1);
  p.row_begin = std::size_t(reinterpret_cast<std::uint64_t>(b.row) - base);
  p.row_bytes = (n_docs + 1) * sizeof(tt_u32);
  arena.put(b.ids, n);
  arena.align(kLine);
  p.total_bytes = arena.used();
  return p;
}

}  // namespace toktier::gpu
