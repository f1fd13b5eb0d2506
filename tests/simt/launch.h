// Runs a kernel on the CPU: what the tests, and whatever stands in for a driver, call. A misuse that the emulator finds (block.h
// lists them) ends the launch with a sentence; the process goes on, and the memory that the kernel wrote is whatever it was by
// then. Not here: anything that only kernels call (simt.h).
#pragma once
#include <cstddef>
#include <cstdint>

struct TtGpuParams;

struct SimtOptions {
  std::uint64_t seed = 1;             // order of threads at every point where they may change places, and the poison
  std::uint32_t resident_blocks = 2;  // run at once, each in a thread of its own; 1: a seed gives one order; always 1 under ASan
  bool shuffled_blocks = false;       // blocks begin in an order drawn by the seed instead of ascending
};

enum SimtStatus : int { SIMT_OK = 0, SIMT_MISUSE = 1, SIMT_REFUSED = 2 };  // refused: nothing was run

// `body` runs once for each thread of the grid. The report is empty after SIMT_OK, else one sentence, cut to what has room.
int simt_run(const char* name, void (*body)(const void*), const void* argument, std::uint32_t blocks, std::uint32_t threads,
             const SimtOptions& options, char* report, std::size_t report_bytes);

// Any kernel with one parameter by value.
template <typename Params>
int simt_launch(const char* name, void (*kernel)(Params), const Params& params, std::uint32_t blocks, std::uint32_t threads,
                const SimtOptions& options, char* report, std::size_t report_bytes) {
  struct Call {
    void (*kernel)(Params);
    const Params* params;
  };
  const Call call{kernel, &params};
  const auto body = [](const void* argument) {
    const Call& made = *static_cast<const Call*>(argument);
    made.kernel(*made.params);
  };
  return simt_run(name, body, &call, blocks, threads, options, report, report_bytes);
}

// The kernels of kernels/toktier.cu (kernels.cpp).
struct SimtKernel {
  const char* name;
  void (*entry)(TtGpuParams);
};
const SimtKernel* simt_kernel(const char* name);  // null: there is none
int simt_launch(const SimtKernel& kernel, std::uint32_t blocks, std::uint32_t threads, const TtGpuParams& params,
                const SimtOptions& options, char* report, std::size_t report_bytes);
