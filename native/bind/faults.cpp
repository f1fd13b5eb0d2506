// `_native.set_fault`, in a build with TOKTIER_FAULTS only: plants one of the faults of faults/faults.def, "" for none.
#include "bind/bind.h"
#include "engine/faults.h"

namespace nb = nanobind;

namespace toktier::bind {

void register_faults([[maybe_unused]] nb::module_& m) {
#ifdef TOKTIER_FAULTS
  m.def("set_fault", [](const char* name) {
    if (!plant_fault(name)) throw nb::value_error("no fault of this name");
  });
#endif
}

}  // namespace toktier::bind
