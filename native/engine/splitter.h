// Where pieces begin in a segment: the one-pass token automaton, and the two passes of LEFT, RGHT and BMAT for programs
// without one (and as the first one's oracle). Both hand out boundaries in bounded lots, so that memory does not grow
// with the number of pieces.
#pragma once
#include <cstdint>

#include "program.h"
#include "scratch.h"

namespace toktier {

constexpr std::uint32_t boundary_lot = 1024;

struct BoundaryLot {
  std::uint32_t position[boundary_lot];
  std::uint8_t value[boundary_lot];  // TT_BOUNDARY or TT_BOUNDARY_DROPPED
  std::uint32_t count;
};
static_assert(boundary_lot > 2 * (TT_MAX_PENDING + 2));

// Boundaries of one segment, ascending; position 0 comes out like any other, or not at all where nothing is to be said of it.
class BoundaryScan {
 public:
  // `right_states` is working memory of the two-pass form: one byte a character.
  BoundaryScan(const Program& program, const std::uint8_t* text, std::uint32_t size, bool two_pass,
               Scratch<std::uint8_t>& right_states);
  // Appends to the lot until it is nearly full; false when there was nothing left. Room for TT_MAX_PENDING + 1 must be there.
  bool next(BoundaryLot& lot);

 private:
  void one_pass(BoundaryLot& lot);
  void second_pass(BoundaryLot& lot);

  const Program& program_;
  const std::uint8_t* text_;
  std::uint32_t size_;
  bool two_pass_, done_ = false;
  std::uint32_t at_ = 0, state_ = 0;  // one pass: state * n_class
  TtPending pending_{};
  const std::uint8_t* right_;  // two passes: right state of the character at at_, going backwards in memory
};

}  // namespace toktier
