// The last tokens that a scope was given, addressed by a logical position that is never used again. One thread writes; any number
// read at the same time without a lock, and learn whether what they read was overwritten meanwhile.
//
// Cell i holds the greatest position below next() that is i modulo size. Position 0 is never written, so 0 can mean "none".
// A writer announces (reserve) before it overwrites; a reader reads, then asks still_held() for the lowest position it looked at:
// if a cell already had a newer token, the announcement is visible. Documents are parted by a marker, which is no token.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace toktier::speculative {

inline constexpr std::uint32_t kMarker = 0xFFFFFFFF;

class TokenRing {
 public:
  // `cells`: [size], outliving the ring.
  TokenRing(std::uint32_t* cells, std::size_t size) : cells_(cells), size_(size) {}

  std::size_t size() const { return size_; }
  std::uint64_t next() const { return next_.load(std::memory_order_acquire); }

  // For the writer alone, from here on.

  // Gives the position.
  std::uint64_t write(std::uint32_t token) {
    const std::uint64_t position = next_.load(std::memory_order_relaxed);
    if (position >= reserved_.load(std::memory_order_relaxed)) reserve(position + kReserved);
    std::atomic_ref(cells_[at_]).store(token, std::memory_order_relaxed);
    at_ = at_ + 1 == size_ ? 0 : at_ + 1;
    next_.store(position + 1, std::memory_order_release);
    return position;
  }
  // After the last write of a call: what was announced and not written is held again.
  void settle() { reserved_.store(next_.load(std::memory_order_relaxed), std::memory_order_release); }

  // Of a position that is held.
  std::uint32_t token(std::uint64_t position) const { return cells_[cell_of(position)]; }
  // Whether the `n` tokens before `position` are `tokens`; they are held.
  bool equal_before(std::uint64_t position, const std::uint32_t* tokens, std::size_t n) const {
    const std::size_t begin = cell_of(position - n), straight = size_ - begin < n ? size_ - begin : n;
    return std::memcmp(cells_ + begin, tokens, straight * sizeof *tokens) == 0 &&
           std::memcmp(cells_, tokens + straight, (n - straight) * sizeof *tokens) == 0;
  }

  // For any thread, from here on.

  // Reads up to `n` cells from `position` on into `sink(token)`, until that gives false. What was read is worth something only
  // if still_held(position) afterwards.
  template <typename Sink>
  void read(std::uint64_t position, std::size_t n, Sink&& sink) const {
    std::size_t cell = std::size_t(position % size_);
    for (std::size_t i = 0; i < n; ++i) {
      if (!sink(std::atomic_ref(cells_[cell]).load(std::memory_order_relaxed))) return;
      cell = cell + 1 == size_ ? 0 : cell + 1;
    }
  }
  bool still_held(std::uint64_t lowest) const {
    std::atomic_thread_fence(std::memory_order_acquire);
    return lowest + size_ >= reserved_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t kReserved = 256;  // announced at once: readers beside a writer lose that many of the oldest

  void reserve(std::uint64_t up_to) {
    reserved_.store(up_to, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
  }
  // Without a division: a held position is at most one round behind.
  std::size_t cell_of(std::uint64_t position) const {
    const std::size_t behind = std::size_t(next_.load(std::memory_order_relaxed) - position);
    return behind <= at_ ? at_ - behind : at_ + size_ - behind;
  }

  std::uint32_t* const cells_;
  const std::size_t size_;
  std::size_t at_ = 1;                                  // cell of next(); the writer's
  std::atomic<std::uint64_t> next_ = 1, reserved_ = 1;  // reserved_: no cell holds a position from here on
};

}  // namespace toktier::speculative
