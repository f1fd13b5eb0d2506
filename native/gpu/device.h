// One device of the driver with our kernels on it: its primary context, the loaded cubin, what its kernels need, and memory
// that frees itself. Whoever calls the driver holds a CurrentContext; the context that the caller's thread had stays his.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "device/abi.h"
#include "driver.h"

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
  // Retains the primary context and loads the cubin. Throws GpuError: no_device, abi_mismatch, load_failed, out_of_memory.
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

 private:
  void load(const std::string& cubin);
  void release() noexcept;

  const std::unique_ptr<const Driver> driver_;
  const int process_;
  const DeviceFacts facts_;
  CuContext context_ = nullptr;
  CuLibrary library_ = nullptr;
  KernelFacts kernels_[TT_KERNEL_COUNT] = {};
};

const char* kernel_name(TtKernel which);

// What a Device gave out, freed under a CurrentContext; `Free` is a call of the driver.
template <typename Handle, auto Free>
class Held {
 public:
  Held() = default;
  Held(const Driver& driver, Handle handle) : driver_(&driver), handle_(handle) {}
  Held(Held&& other) noexcept : driver_(other.driver_), handle_(std::exchange(other.handle_, Handle{})) {}
  Held& operator=(Held&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Held() {
    if (handle_ != Handle{}) (driver_->*Free).attempt(handle_);
  }
  Handle get() const { return handle_; }
  void leave() { handle_ = Handle{}; }  // as it lies

 private:
  const Driver* driver_ = nullptr;
  Handle handle_{};
};

using DeviceMemory = Held<CuPointer, &Driver::cuMemFree>;
using HostMemory = Held<void*, &Driver::cuMemFreeHost>;
using Stream = Held<CuStream, &Driver::cuStreamDestroy>;
using Event = Held<CuEvent, &Driver::cuEventDestroy>;

DeviceMemory allocate_device(const Driver& driver, std::size_t bytes);
HostMemory allocate_host(const Driver& driver, std::size_t bytes);  // page-locked
Stream make_stream(const Driver& driver);
Event make_event(const Driver& driver, unsigned flags = kEventDisableTiming);

}  // namespace toktier::gpu
