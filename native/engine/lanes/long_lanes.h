// The inner loop over the longer words of a window, once for each level: look-up in the cache of words of 16 to 31 bytes.
#pragma once
#include "engine/long_key.h"
#include "lanes.h"

namespace toktier {

struct LongLanes {
  // Line of a key; the same for all of one level, and for one level only.
  std::uint32_t (*line_of)(const LongKey& key, std::uint32_t mask);
  // Looks up the spans that `longer` lists, none of which has less than 16 bytes. What is found gets its value; where that has
  // more than inline_ids, they are written to ids[at...], and the value says where. What is not found stays in the list, in any
  // order, its value undefined. There is room for most_long_ids + 1 ids a span. Returns how many ids `ids` holds then.
  std::uint32_t (*look_up)(WordWindow& window, const LongLine* lines, std::uint32_t mask, std::uint32_t* ids, std::uint32_t at);
};

TOKTIER_LANE_DECLARE(LongLanes, long_lanes)

}  // namespace toktier
