// Cuts inside pieces, between characters that no merge joins (shared/join_filter.h), as bitmaps; once for each level.
#pragma once
#include "engine/split_windows.h"
#include "lanes.h"
#include "shared/join_filter.h"

namespace toktier {

struct CutLanes {
  // Bits of the window's bytes where a part of a piece may begin, in `cuts`; false when there are none. Asked of every pair of
  // characters in one piece, or, without `ascii`, of those with at least one that is not ASCII. `text` is the whole segment.
  bool (*cut)(const TtJoinFilter& filter, bool ascii, const std::uint8_t* text, std::uint32_t size, const SplitWindow& window,
              std::uint64_t* cuts);
  // For each bit of `bits`, ascending, `mark` where `marked` has it too, else 0; may write 64 more.
  void (*mark)(const std::uint64_t* bits, const std::uint64_t* marked, std::uint32_t words, std::uint8_t mark, std::uint8_t* out);
};

TOKTIER_LANE_DECLARE(CutLanes, cut_lanes)

}  // namespace toktier
