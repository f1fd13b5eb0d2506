// The planted fault of the process: one of faults.def, or none. Only builds with TOKTIER_FAULTS read this; the engine asks
// through engine/faults.h. Not here: what a fault does where the engine asks for it.
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

bool plant_fault(std::string_view name);  // "": none; false for a name that faults.def lacks; while nothing is encoded
void plant_in_tables(Program& program);   // what a planted fault changes in tables, when they are opened
extern Fault planted_fault;

}  // namespace toktier
