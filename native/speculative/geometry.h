// How a budget of bytes becomes scopes, slots and ring tokens. Arithmetic alone: no memory is taken here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace toktier::speculative {

inline constexpr std::size_t kSlotBytes = 8, kTokenBytes = 4;
inline constexpr std::size_t kLeastPerScope = 6144;  // bytes; from here on every number gives a ring of 1,024 tokens or more

struct Geometry {
  std::size_t max_scopes = 0, key_len = 0;
  std::size_t slots = 0;  // of a scope, a power of two
  std::size_t ring = 0;   // tokens of a scope
  std::size_t bytes() const { return slots * kSlotBytes + ring * kTokenBytes; }  // of a scope
};

// What was asked cannot be: what it is, and what to do.
struct GeometryFault {
  std::string what, remedy;
};

// Slots are the largest power of two within half of budget_bytes / max_scopes, the ring takes the rest. So the ring is not
// monotone in the budget: 8,191 bytes give 1,535 tokens, 8,192 give 1,024 and twice the slots. Throws GeometryFault.
Geometry geometry_of(std::size_t budget_bytes, std::size_t max_scopes, std::size_t key_len);

}  // namespace toktier::speculative
