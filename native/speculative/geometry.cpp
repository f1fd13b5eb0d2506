// The arithmetic, and the sentences about what it refuses.
#include "speculative/geometry.h"

#include <bit>

#include "speculative/slot_table.h"

namespace toktier::speculative {

Geometry geometry_of(std::size_t budget_bytes, std::size_t max_scopes, std::size_t key_len) {
  using std::to_string;
  if (max_scopes == 0) throw GeometryFault{"max_scopes is 0: expected 1 or more", "give max_scopes=1 or more"};
  if (key_len == 0) throw GeometryFault{"key_len is 0: expected 1 or more", "give key_len=1 or more; 8 is usual"};
  const std::size_t per_scope = budget_bytes / max_scopes;
  if (per_scope < kLeastPerScope)
    throw GeometryFault{"budget_bytes is " + to_string(budget_bytes) + ", which is " + to_string(per_scope) +
                            " bytes for each of max_scopes=" + to_string(max_scopes) + ": expected " +
                            to_string(kLeastPerScope) + " or more, for a ring of 1024 tokens",
                        "give a larger budget_bytes, or fewer max_scopes"};
  Geometry geometry;
  geometry.max_scopes = max_scopes;
  geometry.key_len = key_len;
  geometry.slots = std::bit_floor(per_scope / 2 / kSlotBytes);
  geometry.ring = (per_scope - geometry.slots * kSlotBytes) / kTokenBytes;
  // The least that can be stored: an n-gram, the token that follows, the marker behind it.
  if (key_len > geometry.ring - 2)
    throw GeometryFault{"key_len is " + to_string(key_len) + ": expected at most " + to_string(geometry.ring - 2) +
                            ", two less than the ring of " + to_string(geometry.ring) + " tokens",
                        "give a shorter key_len, a larger budget_bytes, or fewer max_scopes"};
  if (geometry.ring > kLongestRing)
    throw GeometryFault{"budget_bytes is " + to_string(budget_bytes) + ", which is a ring of " + to_string(geometry.ring) +
                            " tokens for each of max_scopes=" + to_string(max_scopes) + ": expected at most " +
                            to_string(kLongestRing),
                        "give a smaller budget_bytes, or more max_scopes"};
  return geometry;
}

}  // namespace toktier::speculative
