// The CUDA driver, opened at run time: no header and no library of CUDA is needed to build or to start. Each function that we
// call is a member which throws GpuError where the driver reports an error; `attempt` hands the result back instead.
// Types are our own declarations of what the driver's interface fixes; a handle is a pointer that nobody looks into.
#pragma once
#include <atomic>
#include <cstddef>
#include <string>

#include "error.h"

namespace toktier::gpu {

using CuResult = int;
using CuDevice = int;
using CuPointer = unsigned long long;  // device memory
using CuContext = struct CuContextTag*;
using CuLibrary = struct CuLibraryTag*;
using CuKernel = struct CuKernelTag*;
using CuStream = struct CuStreamTag*;
using CuEvent = struct CuEventTag*;

constexpr CuResult kCudaSuccess = 0, kNotReady = 600;
constexpr int kOldestDriver = 12000;  // cuLibraryLoadData and its kind

// Values that the interface fixes.
constexpr unsigned kHostPortable = 1;
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventTiming = 0, kEventDisableTiming = 2;
enum CuDeviceAttribute : int { kMultiprocessors = 16, kComputeMajor = 75, kComputeMinor = 76 };
enum CuKernelAttribute : int { kMaxThreads = 0, kSharedBytes = 1, kLocalBytes = 3, kRegisters = 4 };

// name, exported symbol, parameters
#define TT_DRIVER_CALLS(X)                                                                                                     \
  X(cuInit, cuInit, unsigned)                                                                                                  \
  X(cuDeviceGetCount, cuDeviceGetCount, int*)                                                                                  \
  X(cuDeviceGet, cuDeviceGet, CuDevice*, int)                                                                                  \
  X(cuDeviceGetName, cuDeviceGetName, char*, int, CuDevice)                                                                    \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, int*, int, CuDevice)                                                           \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, std::size_t*, CuDevice)                                                             \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, CuContext*, CuDevice)                                                  \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, CuDevice)                                                         \
  X(cuCtxPushCurrent, cuCtxPushCurrent_v2, CuContext)                                                                          \
  X(cuCtxPopCurrent, cuCtxPopCurrent_v2, CuContext*)                                                                           \
  X(cuLibraryLoadData, cuLibraryLoadData, CuLibrary*, const void*, void*, void**, unsigned, void*, void**, unsigned)           \
  X(cuLibraryUnload, cuLibraryUnload, CuLibrary)                                                                               \
  X(cuLibraryGetKernel, cuLibraryGetKernel, CuKernel*, CuLibrary, const char*)                                                 \
  X(cuLibraryGetGlobal, cuLibraryGetGlobal, CuPointer*, std::size_t*, CuLibrary, const char*)                                  \
  X(cuKernelGetAttribute, cuKernelGetAttribute, int*, int, CuKernel, CuDevice)                                                 \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor, int*, CuKernel, int, std::size_t) \
  X(cuMemGetInfo, cuMemGetInfo_v2, std::size_t*, std::size_t*)                                                                 \
  X(cuMemAlloc, cuMemAlloc_v2, CuPointer*, std::size_t)                                                                        \
  X(cuMemFree, cuMemFree_v2, CuPointer)                                                                                        \
  X(cuMemHostAlloc, cuMemHostAlloc, void**, std::size_t, unsigned)                                                             \
  X(cuMemFreeHost, cuMemFreeHost, void*)                                                                                       \
  X(cuMemcpyDtoH, cuMemcpyDtoH_v2, void*, CuPointer, std::size_t)                                                              \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, CuPointer, const void*, std::size_t, CuStream)                                    \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, void*, CuPointer, std::size_t, CuStream)                                          \
  X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, CuPointer, CuPointer, std::size_t, CuStream)                                      \
  X(cuMemsetD8Async, cuMemsetD8Async, CuPointer, unsigned char, std::size_t, CuStream)                                         \
  X(cuStreamCreate, cuStreamCreate, CuStream*, unsigned)                                                                       \
  X(cuStreamDestroy, cuStreamDestroy_v2, CuStream)                                                                             \
  X(cuStreamQuery, cuStreamQuery, CuStream)                                                                                    \
  X(cuStreamWaitEvent, cuStreamWaitEvent, CuStream, CuEvent, unsigned)                                                         \
  X(cuEventCreate, cuEventCreate, CuEvent*, unsigned)                                                                          \
  X(cuEventRecord, cuEventRecord, CuEvent, CuStream)                                                                           \
  X(cuEventElapsedTime, cuEventElapsedTime, float*, CuEvent, CuEvent)                                                          \
  X(cuEventDestroy, cuEventDestroy_v2, CuEvent)                                                                                \
  X(cuLaunchKernel, cuLaunchKernel, CuKernel, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CuStream,  \
    void**, void**)

class Driver;

// Throws GpuError for a result that is no success: what the driver calls it, and which call it was.
void check_result(const Driver& driver, CuResult result, const char* call);
// True where nothing of this process runs on the device any more after such a result.
bool is_lost(CuResult result);

template <typename... Parameters>
class DriverCall {
 public:
  DriverCall(const Driver& driver, const char* name) : driver_(driver), name_(name) {}
  void operator()(Parameters... arguments) const { check_result(driver_, function_(arguments...), name_); }
  CuResult attempt(Parameters... arguments) const noexcept { return function_(arguments...); }

 private:
  friend class Driver;
  const Driver& driver_;
  const char* name_;
  CuResult (*function_)(Parameters...) = nullptr;
};

class Driver {
 public:
  // `library`: of the driver; empty: libcuda.so.1 where the system's loader finds it. Never closed again: threads of the
  // driver live on in it. Throws driver_missing, driver_too_old, no_device.
  explicit Driver(const std::string& library);
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  int version() const { return version_; }  // of CUDA, 12040 for 12.4
  std::string result_name(CuResult result) const;

  // A run of its device hangs: from now on nothing of this driver is waited for, and nothing is given back to it (held.h).
  void give_up() const { given_up_ = true; }
  bool is_given_up() const { return given_up_; }

#define TT_X(name, symbol, ...) DriverCall<__VA_ARGS__> name{*this, #name};
  TT_DRIVER_CALLS(TT_X)
#undef TT_X

 private:
  template <typename... Parameters>
  void resolve(DriverCall<Parameters...>& call, const char* symbol);

  void* library_ = nullptr;
  CuResult (*by_name_)(const char*, void**, int, unsigned long long, int*) = nullptr;
  CuResult (*error_name_)(CuResult, const char**) = nullptr;
  int version_ = 0;
  mutable std::atomic<bool> given_up_{false};
};

std::string version_text(int version);  // 12.4

}  // namespace toktier::gpu
