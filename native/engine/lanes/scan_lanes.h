// Finding the few places of a text where something may happen, at memory speed: where an added token may begin, where a
// character stands that a normalization form may change. What is found is a superset, and whoever asks looks at each place;
// what is not found needs no look. Once for each dispatch level. Not here: what the places mean.
#pragma once
#include <cstddef>
#include <cstdint>

#include "lanes.h"

namespace toktier {

// Pairs of bytes that tokens begin with, in eight groups of one bit: a place is found when some group has its first byte and
// its second one. Bytes are told apart by their halves, so that a group is exact for one first byte.
struct StartFilter {
  alignas(64) std::uint8_t first_low[16] = {}, first_high[16] = {}, second_low[16] = {}, second_high[16] = {};
  std::uint8_t is_first[256] = {};  // 1: found even as the last byte of a text
};

// Characters beyond ASCII, in eight groups of one bit: a character is found when some group has its lead byte, the byte after
// and the byte after that. Indices are the low six bits. A group of characters whose third byte does not count has all of them.
struct CharacterFilter {
  alignas(64) std::uint8_t lead[64] = {}, second[64] = {}, third[64] = {};
};

struct ScanLanes {
  // The first block of 64 bytes, counted from `from`, with a place: its begin, and in `places` bit i for text[begin + i]. `size`
  // where there is none. Reads nothing at `size` or behind it.
  std::uint32_t (*find_starts)(const StartFilter& filter, const std::uint8_t* text, std::uint32_t from, std::uint32_t size,
                               std::uint64_t& places);
  // The same for lead bytes of characters; `from` begins a character.
  std::uint32_t (*find_characters)(const CharacterFilter& filter, const std::uint8_t* text, std::uint32_t from,
                                   std::uint32_t size, std::uint64_t& places);
  std::uint32_t (*count_byte)(const std::uint8_t* text, std::uint32_t size, std::uint8_t byte);
  // `text` with every `byte` replaced by with[0, length), 2 to 4: writes to `out`, which has room for the outcome and
  // replace_slack more, and returns the bytes of the outcome.
  std::uint32_t (*replace_byte)(const std::uint8_t* text, std::uint32_t size, std::uint8_t byte, const std::uint8_t* with,
                                std::uint32_t length, std::uint8_t* out);
};
constexpr std::size_t replace_slack = 64;

TOKTIER_LANE_DECLARE(ScanLanes, scan_lanes)

}  // namespace toktier
