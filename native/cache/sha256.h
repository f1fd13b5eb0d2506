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
  Digest digest() const;  // of all bytes so far; more may follow

 private:
  using Compress = void (*)(std::uint32_t* state, const std::uint8_t* blocks, std::size_t count);
  Compress compress_;
  std::uint32_t state_[8];
  std::uint8_t open_[64];  // bytes of the block that is not full
  std::uint64_t size_ = 0;
};

}  // namespace toktier::cache
