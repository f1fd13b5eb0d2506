// Faults planted on purpose, in a build with TOKTIER_FAULTS only: evidence that certification finds them (faults.def lists them).
// In an ordinary build TOKTIER_FAULT is the constant false, and no code, data or symbol of this file is left.
#pragma once
#include <string_view>

namespace toktier {

struct Program;

enum class Fault : unsigned {
  none,
#define TOKTIER_FAULT_ROW(name, on, what) name,
#include "faults.def"
#undef TOKTIER_FAULT_ROW
};

#ifdef TOKTIER_FAULTS
bool plant_fault(std::string_view name);  // "": none; false for a name that faults.def lacks; while nothing is encoded
void plant_in_tables(Program& program);   // what a planted fault changes in tables, when they are opened
extern Fault planted_fault;               // of the process

#define TOKTIER_FAULT(name) (::toktier::planted_fault == ::toktier::Fault::name)
#else
inline void plant_in_tables(Program&) {}

#define TOKTIER_FAULT(name) (static_cast<void>(::toktier::Fault::name), false)
#endif

}  // namespace toktier
