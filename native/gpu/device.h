// One device of the driver with our kernels on it: its primary context, the loaded cubin, what its kernels need, and memory
// that is given back while nothing runs. Whoever calls the driver holds a CurrentContext; the context that the caller's thread
// had stays his.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/abi.h"
#include "driver.h"
#include "held.h"

namespace toktier::gpu {

// The context is current on this thread for a scope.
class CurrentContext {
 public:
  CurrentContext(const Driver& driver, CuContext context) : driver_(driver) { driver_.cuCtxPushCurrent(context); }
  ~CurrentContext() {
    CuContext before;
    driver_.cuCtxPopCurrent.attempt(&before);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
};

struct KernelFacts {
  CuKernel handle;
  int registers, local_bytes, shared_bytes;
  unsigned blocks;  // that the whole device runs at once
};

struct DeviceFacts {
  int ordinal;
  CuDevice handle;
  std::string name;
  int major, minor;  // compute capability
  int multiprocessors;
  std::size_t memory_bytes;
  int devices;  // that the driver lists
};

// Asks the driver, and makes no context. Throws no_device.
DeviceFacts find_device(const Driver& driver, int ordinal);

class Device {
 public:
  // Retains the primary context and loads the cubin. Throws GpuError: no_device, abi_mismatch, load_failed, out_of_memory, hung.
  Device(std::unique_ptr<const Driver> driver, int ordinal, const std::string& cubin);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Driver& driver() const { return *driver_; }
  // False in a child of the process that opened it, which has neither context nor threads of the driver.
  bool is_here() const;
  CuContext context() const { return context_; }
  const DeviceFacts& facts() const { return facts_; }
  const KernelFacts& kernel(TtKernel which) const { return kernels_[which]; }
  std::size_t free_bytes() const;  // under a CurrentContext

  // A run of our kernels is under way between these.
  void run_begins() const;
  void run_ends() const noexcept;  // under a CurrentContext
  // Frees memory, now or when no run is under way: the driver's free waits for whatever runs, for ever where that hangs.
  void discard(DeviceMemory memory, std::size_t bytes) const noexcept;  // under a CurrentContext
  // So much memory waits that the next run should wait for it to be freed.
  bool is_congested() const;

 private:
  void load(const std::string& cubin);
  void release() noexcept;

  const std::unique_ptr<const Driver> driver_;
  const int process_;
  const DeviceFacts facts_;
  CuContext context_ = nullptr;
  CuLibrary library_ = nullptr;
  KernelFacts kernels_[TT_KERNEL_COUNT] = {};

  mutable std::mutex guard_;  // of the members below
  mutable unsigned runs_ = 0;
  mutable std::vector<DeviceMemory> discarded_;
  mutable std::size_t discarded_bytes_ = 0;
};

const char* kernel_name(TtKernel which);

}  // namespace toktier::gpu
