// The vector steps of splitting: text → one class a character, classes → bits of starts, bits of characters → bits of
// bytes, bits → positions. What they mean together is split_windows.h; the scalar form of each is in the same source.
#pragma once
#include <cstdint>

#include "lanes.h"
#include "shared/target.h"

namespace toktier {

// Tables of one program, made when it is opened (split_tables.h).
struct SplitTables {
  static constexpr std::uint8_t mixed = 0x80;  // characters with these bytes have more than one class
  enum Set : std::uint32_t { starts, drops = 4, undecided = 5, sets = 8 };  // the first of each kind

  alignas(64) std::uint8_t ascii[128];      // class of each ASCII character
  alignas(64) std::uint8_t lead[128];       // by first byte 0x80 | k: the class of all its characters, or `mixed`
  alignas(64) std::uint8_t second[32][64];  // by first byte 0xE0 | k, then second byte 0x80 | k: likewise
  alignas(64) std::uint8_t terms[sets][5][64];  // [set][place of the window][class]: SplitRules, a byte of bits each
  std::uint64_t words[5][64];               // the same, for the scalar form
  const std::uint16_t* class1;
  const std::uint8_t* class2;
  std::uint32_t n_class;
  std::uint32_t start_sets, undecided_sets;  // that are used
  bool any_drops;
};

struct SplitLanes {
  // Classes of the characters that begin in text[begin, end) go to `classes`, 64 bytes behind the last may be overwritten;
  // returns how many. `lead`: a bit a byte, where characters begin; `ascii`: whether all are. Reads nothing from text + size on.
  std::uint32_t (*classify)(const SplitTables& t, const std::uint8_t* text, std::uint32_t begin, std::uint32_t end,
                            std::uint32_t size, std::uint8_t* classes, std::uint64_t* lead, bool& ascii);
  // stream: three classes before, `count` classes, one behind, and 64 bytes that may be read. Bits of `count` positions, 0 behind
  // the last. Undecided positions have neither of the other bits. Returns 1 where one is undecided, 2 where one is dropped.
  std::uint32_t (*decide)(const SplitTables& t, const std::uint8_t* stream, std::uint32_t count, std::uint64_t* start,
                          std::uint64_t* dropped, std::uint64_t* undecided);
  // Bits by character → bits by byte. `bits` ends with a word that may be read.
  void (*spread)(const std::uint64_t* bits, const std::uint64_t* lead, std::uint32_t words, std::uint64_t* out);
  // See list_bits in split_windows.h.
  std::uint32_t (*list)(const std::uint64_t* words, std::uint32_t count, std::uint32_t base, std::uint32_t* out);
};

TOKTIER_LANE_DECLARE(SplitLanes, split_lanes)

}  // namespace toktier
