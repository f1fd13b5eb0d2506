// Byte-pair merging of several words side by side, once for each level.
#pragma once
#include "lanes.h"
#include "shared/pair_table.h"

namespace toktier {

constexpr std::uint32_t longest_merged = 32;  // symbols, which are bytes

struct MergeWord {
  const std::uint8_t* text;  // every byte has a symbol
  std::uint32_t size;        // 1 to longest_merged
  std::uint32_t count;       // out: ids
  std::uint32_t ids[longest_merged];
};

// The compact form of the pair table only: its orders leave five bits for a position.
struct MergeTables {
  TtPairTable pairs;
  const std::uint32_t* byte_symbol;
};
static_assert(TT_PAIR_ORDER_BITS + 5 < 32);

struct MergeLanes {
  void (*merge)(const MergeTables& tables, MergeWord* words, std::uint32_t count);
};

TOKTIER_LANE_DECLARE(MergeLanes, merge_lanes)

}  // namespace toktier
