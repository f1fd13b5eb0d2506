// The places where a fault can be planted on purpose, in a build with TOKTIER_FAULTS only: evidence that certification
// finds them. In an ordinary build TOKTIER_FAULT is the constant false, and no code, data or symbol is left of it; what
// faults there are (native/faults) is then not even read, so that the list is no part of the engine's identity.
#pragma once

#ifdef TOKTIER_FAULTS
#include "faults/planted.h"

#define TOKTIER_FAULT(name) (::toktier::planted_fault == ::toktier::Fault::name)
#else
namespace toktier {

struct Program;

inline void plant_in_tables(Program&) {}

}  // namespace toktier

#define TOKTIER_FAULT(name) false
#endif
