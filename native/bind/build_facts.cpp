// `_native.build_facts`: what this module was built from, and how. Identities come from tools/compute_identity.py, flags from
// CMake.
#include "bind/bind.h"
#include "build_identity.h"
#include "engine/lanes/level.h"

namespace nb = nanobind;

namespace toktier::bind {

namespace {
#if defined(__clang__)
constexpr const char* kCompiler = __VERSION__;  // names itself
#elif defined(__GNUC__)
constexpr const char* kCompiler = "GCC " __VERSION__;
#else
constexpr const char* kCompiler = "unknown";
#endif
}  // namespace

void register_build_facts(nb::module_& m) {
  m.def("build_facts", [] {
    nb::dict out;
    out["identity"] = TOKTIER_ENGINE_IDENTITY;
    out["native_digest"] = TOKTIER_NATIVE_DIGEST;
    out["gpu_host_digest"] = TOKTIER_GPU_HOST_DIGEST;
    out["compiler"] = kCompiler;
    out["flags"] = TOKTIER_BUILD_FLAGS;
    out["build_type"] = TOKTIER_BUILD_TYPE;
    nb::list levels;  // code paths that this CPU can take, slowest first; the last one is taken
    for (const Level level : available_levels()) levels.append(level_name(level));
    out["dispatch_levels"] = levels;
    return out;
  });
}

}  // namespace toktier::bind
