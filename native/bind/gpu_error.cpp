// The exception type and its translation.
#include "bind/gpu_error.h"

#include "bind/coded_error.h"

namespace toktier::bind {

namespace {

CodedError gpu_error;

}  // namespace

void set_gpu_error(const gpu::GpuError& error) { gpu_error.set(error.what(), gpu::fault_code(error.fault())); }

void register_gpu_error(nanobind::module_& m) {
  gpu_error.add_to<gpu::GpuError, set_gpu_error>(m, "GpuError", "The GPU engine cannot be used; `code` says why.",
                                                 PyExc_RuntimeError);
}

}  // namespace toktier::bind
