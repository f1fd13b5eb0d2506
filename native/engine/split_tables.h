// What WindowSplitter knows of a program, derived from its boundary tables when it is opened.
#pragma once
#include <cstdint>
#include <vector>

#include "lanes/split_lanes.h"
#include "shared/boundary.h"

namespace toktier {

struct SplitProgram {
  bool usable = false;  // there are a token automaton and local rules
  bool drops = false;   // a piece may be dropped
  SplitTables lanes;
  // [(n_class + 1)²] by the classes of the two characters before a position: the row (state * n_class, plus 1) of the token
  // automaton there where it is the same whatever stood before them and nothing is pending; else 0.
  std::vector<std::uint32_t> known;
};

// `rules`: RULE, which is there.
void make_split_program(const TtBoundary& boundary, const std::uint64_t* rules, SplitProgram& out);

}  // namespace toktier
