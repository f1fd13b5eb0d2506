// The transition monoid of one automaton: the functions on states that reading some text makes, numbered. A device scans texts
// by them: whatever state a stretch is entered in, what it does is one byte, and two stretches compose by one look-up.
// A segment begins anew, so the character that begins one makes a constant function, whatever came before it.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "device/abi.h"

namespace toktier::gpu {

// As TtMonoid; 0 is the identity. Numbered breadth first, by generators in the order of classes, those that begin a segment
// last: the same table gives the same numbers.
struct Monoid {
  std::vector<std::uint8_t> of_class, of_first, compose, state;
  std::vector<std::uint8_t> functions;  // [n_elements * n_states] what each element does; no device needs it
  std::uint32_t n_elements = 0;
};

// Of the automaton with next states `table` [n_states * n_class], in which a segment begins in `start`; nothing where there are
// more than TT_MAX_ELEMENTS elements. At most 256 classes and states. The work is bounded by elements × generators × states.
std::optional<Monoid> make_monoid(const std::uint8_t* table, std::uint32_t n_class, std::uint32_t n_states, std::uint32_t start);

}  // namespace toktier::gpu
