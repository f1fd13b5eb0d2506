// UTF-8 made and checked at memory speed, once for each dispatch level: what stands between the caller's text and the engine.
// Not here: Python objects (native/bind/text.h), and what is done about malformed text.
#pragma once
#include <cstddef>
#include <cstdint>

#include "lanes.h"

namespace toktier {

// Bytes that the writers below may touch behind the last one they write for good.
constexpr std::size_t transcode_slack = 64;

struct TranscodeLanes {
  // Units of one, two and four bytes to UTF-8 at `out`, which has room for the longest outcome (2, 3 and 4 bytes a unit) and
  // transcode_slack more. The end of what was written, or null at a surrogate: `at` is the index of the first one.
  char* (*from_latin1)(const std::uint8_t* units, std::size_t count, char* out);
  char* (*from_ucs2)(const std::uint16_t* units, std::size_t count, char* out, std::size_t& at);
  char* (*from_ucs4)(const std::uint32_t* units, std::size_t count, char* out, std::size_t& at);
  // Index of the first byte of the first malformed sequence, or `size`.
  std::size_t (*first_malformed)(const std::uint8_t* bytes, std::size_t size);
};

TOKTIER_LANE_DECLARE(TranscodeLanes, transcode_lanes)

}  // namespace toktier
