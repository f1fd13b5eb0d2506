// `_native.GpuError`: a RuntimeError with a `code`, for every fault of native/gpu that reaches Python.
#pragma once
#include "bind/bind.h"
#include "gpu/error.h"

namespace toktier::bind {

void set_gpu_error(const gpu::GpuError& error);
void register_gpu_error(nanobind::module_& m);  // a GpuError that a nanobind function throws is raised as it

}  // namespace toktier::bind
