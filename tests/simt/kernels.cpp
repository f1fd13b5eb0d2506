// The kernels of kernels/toktier.cu as functions of this process, by name.
#include "toktier.cu"

#include <cstdio>
#include <cstring>

#include "launch.h"

namespace {

constexpr SimtKernel kernels[] = {
#define TT_X(name, work) {#name, name},
    TT_KERNELS(TT_X)
#undef TT_X
};

}  // namespace

const SimtKernel* simt_kernel(const char* name) {
  for (const SimtKernel& kernel : kernels)
    if (std::strcmp(kernel.name, name) == 0) return &kernel;
  return nullptr;
}

int simt_launch(const SimtKernel& kernel, std::uint32_t blocks, std::uint32_t threads, const TtGpuParams& params,
                const SimtOptions& options, char* report, std::size_t report_bytes) {
  if (threads > TT_TILE_THREADS) {  // as a driver would
    std::snprintf(report, report_bytes, "kernel %s has launch bounds of %u threads and cannot be launched with %u", kernel.name,
                  TT_TILE_THREADS, threads);
    return SIMT_REFUSED;
  }
  return simt_launch(kernel.name, kernel.entry, params, blocks, threads, options, report, report_bytes);
}
