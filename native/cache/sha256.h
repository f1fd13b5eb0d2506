// SHA-256 (FIPS 180-4) of a text that grows: the digest of every prefix that a caller asks for, in one pass. With the CPU's SHA
// instructions where it has them (x86-64), which is what makes a digest of the text cheaper than encoding it again; else in plain
// C++. Tests hold both to another implementation at every length around the blocks.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace toktier::cache {

using Digest = std::array<std::uint8_t, 32>;

bool has_sha_instructions();

class Sha256 {
 public:
  explicit Sha256(bool instructions = has_sha_instructions());
  void update(std::string_view bytes);
  // How many of `bytes` more would end the last block that they fill, 0 where they fill none: to feed so many at a time spares
  // copying and blocks on their own.
  std::size_t whole_blocks(std::size_t bytes) const {
    const std::size_t held = size_ % 64;
    return held + bytes < 64 ? 0 : (held + bytes) / 64 * 64 - held;
  }
  // Of all bytes so far and the tail, with which no block is full; more may follow instead of the tail.
  Digest digest(std::string_view tail = {}) const;

 private:
  using Compress = void (*)(std::uint32_t* state, const std::uint8_t* blocks, std::size_t count);
  Compress compress_;
  std::uint32_t state_[8];
  std::uint8_t open_[64];  // bytes of the block that is not full
  std::uint64_t size_ = 0;
};

}  // namespace toktier::cache
