// Steps of the boundary automaton: the two-pass form (left forwards, right backwards, matrix) and the one-pass token
// automaton, whose action byte is decoded here. What a boundary means for pieces is the caller's business.
#pragma once
#include "layout.h"
#include "trie.h"

// Value of a position: 0 no boundary, 1 a piece starts here, 2 a piece that is dropped starts here.
constexpr tt_u32 TT_NO_BOUNDARY = 0;
constexpr tt_u32 TT_BOUNDARY = 1;
constexpr tt_u32 TT_BOUNDARY_DROPPED = 2;

TT_HD tt_u32 tt_class(const TtBoundary& b, tt_u32 cp) { return tt_trie(b.class1, b.class2, cp); }
TT_HD tt_u32 tt_left_step(const TtBoundary& b, tt_u32 state, tt_u32 cls) { return b.left[state * b.n_class + cls]; }
TT_HD tt_u32 tt_right_step(const TtBoundary& b, tt_u32 state, tt_u32 cls) { return b.right[state * b.n_class + cls]; }
TT_HD tt_u32 tt_boundary_value(const TtBoundary& b, tt_u32 left, tt_u32 right) { return b.matrix[left * b.n_right + right]; }

// Undecided positions, oldest first.
struct TtPending {
  tt_u32 at[TT_MAX_PENDING + 1];
  tt_u32 count;
};

// Applies one action byte read at `position`. Each decided boundary goes to sink(position, value), ascending.
// The program reader proved for every reachable state that an action never speaks of a position that is not pending and
// never leaves more than TT_MAX_PENDING.
template <typename Sink>
TT_HD void tt_token_action(tt_u32 action, tt_u32 position, TtPending& pending, Sink&& sink) {
  tt_u32 kept = 0;
  for (tt_u32 k = 0; k < pending.count; ++k) {
    const tt_u32 verdict = action >> (2 * k + 2) & 3;
    if (verdict == 0)
      pending.at[kept++] = pending.at[k];
    else if (verdict != 2)
      sink(pending.at[k], verdict == 1 ? TT_BOUNDARY : TT_BOUNDARY_DROPPED);
  }
  const tt_u32 self = action & 3;
  if (self == 3)
    pending.at[kept++] = position;
  else if (self != 0)
    sink(position, self);
  pending.count = kept;
}

// The text ends: what TEOF says of the pending positions.
template <typename Sink>
TT_HD void tt_token_end(tt_u32 verdicts, TtPending& pending, Sink&& sink) {
  for (tt_u32 k = 0; k < pending.count; ++k) {
    const tt_u32 value = verdicts >> (2 * k) & 3;
    if (value != TT_NO_BOUNDARY) sink(pending.at[k], value);
  }
  pending.count = 0;
}
