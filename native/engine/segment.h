// A stretch of text on its way through the stages, and where each of its bytes comes from.
#pragma once
#include <cstdint>

#include "scratch.h"

namespace toktier {

// Longest text of the engine: positions are 32 bits, with room for a prefix.
constexpr std::uint64_t longest_text = 0xFFFFFF00ull;

struct Segment {
  const std::uint8_t* text;  // valid UTF-8
  std::uint32_t size;        // bytes
  // By byte: index of the code point of the original text that its character stands for. Null unless offsets are wanted.
  const std::uint32_t* origin;

  Segment part(std::uint32_t begin, std::uint32_t end) const {
    return {text + begin, end - begin, origin == nullptr ? nullptr : origin + begin};
  }
};

// A segment that owns its bytes.
struct SegmentBuffer {
  Scratch<std::uint8_t> text;
  Scratch<std::uint32_t> origin;

  Segment view(bool with_origin) const {
    return {text.data(), static_cast<std::uint32_t>(text.size()), with_origin ? origin.data() : nullptr};
  }
};

}  // namespace toktier
