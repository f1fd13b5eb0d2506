// Local rules of a boundary automaton: what the classes of three characters before a position and of two from it on say of
// the position, whatever stands around them. Found from LEFT, RGHT and BMAT alone: the states that are possible after the
// three and before the two are known sets, and where the matrix is constant over both, the position is decided. So the rules
// are exact by construction, and they know of no pattern. On text, 1 position in 130 to 5,000 stays undecided.
//
// Kept as sums of products, for look-ups that work on many positions at once: each place of the window maps its class to a
// word of bits, one bit a term; the words of the five places are ANDed, and a bit is left where a term holds.
#pragma once
#include <cstdint>
#include <vector>

#include "shared/boundary.h"

namespace toktier::compile {

struct BoundaryRules {
  std::vector<std::uint64_t> terms;                      // RULE; empty where there are none
  std::uint32_t starts = 0, drops = 0, undecided = 0;    // terms of each kind
};

// Of LEFT, RGHT and BMAT, whose states are all reachable. `ascii_class`: of each ASCII character, for what is usual in text.
BoundaryRules find_boundary_rules(const TtBoundary& boundary, const std::uint8_t* ascii_class);

}  // namespace toktier::compile
