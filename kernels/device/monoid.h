// Composition of elements of a transition monoid, as the operation of a scan. What the elements are: native/gpu/monoid.h.
#pragma once
#include "abi.h"
#include "device.h"

struct TtComposition {
  const tt_u8* compose;
  tt_u32 n_elements;
  // `first`, then `second`, in the order of reading.
  TT_DEV tt_u32 operator()(tt_u32 first, tt_u32 second) const { return compose[first * n_elements + second]; }
};

TT_DEV TtComposition tt_composition(const TtMonoid& monoid) { return {monoid.compose, monoid.n_elements}; }
