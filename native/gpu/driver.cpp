// Opens libcuda and tells its results apart.
#include "driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>

namespace toktier::gpu {

namespace {

// Results that we tell apart, by number: the names come from the driver.
enum : CuResult {
  kOutOfMemory = 2,
  kStubLibrary = 34,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kInvalidSource = 300,
  kNotFound = 500,
  kSystemDriverMismatch = 803,
  kCompatNotSupported = 804,
};

// After these the context takes no more work: faults of kernels, of memory, of the device itself, and unknown ones.
constexpr CuResult kLost[] = {4,   46,  201, 214, 220, 226, 700, 702, 709, 710, 714,
                              715, 716, 717, 718, 719, 721, 805, 806, 810, 911, 999};

constexpr unsigned long long kLegacyStream = 1;

Fault fault_of(CuResult result) {
  if (result == kOutOfMemory) return Fault::out_of_memory;
  if (result == kStubLibrary) return Fault::driver_missing;
  if (result == kSystemDriverMismatch || result == kCompatNotSupported) return Fault::driver_too_old;
  if (result == kNoDevice || result == kInvalidDevice) return Fault::no_device;
  if (is_lost(result)) return Fault::device_lost;
  if ((result >= kInvalidImage && result <= kInvalidSource) || result == kNotFound) return Fault::load_failed;
  return Fault::launch_failed;
}

}  // namespace

const char* fault_code(Fault fault) {
  static const char* const names[] = {
#define TT_X(name) #name,
      TT_GPU_FAULTS(TT_X)
#undef TT_X
  };
  return names[static_cast<unsigned>(fault)];
}

bool is_lost(CuResult result) { return std::find(std::begin(kLost), std::end(kLost), result) != std::end(kLost); }

void check_result(const Driver& driver, CuResult result, const char* call) {
  if (result != kCudaSuccess) throw GpuError(fault_of(result), driver.result_name(result) + " from " + call);
}

std::string version_text(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

Driver::Driver(const std::string& library) {
  const char* const name = library.empty() ? "libcuda.so.1" : library.c_str();
  library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) {
    const char* const why = dlerror();
    throw GpuError(Fault::driver_missing, std::string("no NVIDIA driver: ") + (why == nullptr ? name : why));
  }
  const auto get_version = reinterpret_cast<CuResult (*)(int*)>(dlsym(library_, "cuDriverGetVersion"));
  if (get_version == nullptr) throw GpuError(Fault::driver_missing, std::string(name) + " has no cuDriverGetVersion");
  error_name_ = reinterpret_cast<decltype(error_name_)>(dlsym(library_, "cuGetErrorName"));
  check_result(*this, get_version(&version_), "cuDriverGetVersion");
  if (version_ < kOldestDriver)
    throw GpuError(Fault::driver_too_old, "the NVIDIA driver is of CUDA " + version_text(version_) + "; CUDA " +
                                              version_text(kOldestDriver) + " or newer is needed: update the driver");
  by_name_ = reinterpret_cast<decltype(by_name_)>(dlsym(library_, "cuGetProcAddress_v2"));
#define TT_X(name, symbol, ...) resolve(name, #symbol);
  TT_DRIVER_CALLS(TT_X)
#undef TT_X
  const CuResult result = cuInit.attempt(0);
  if (result == kCudaSuccess) return;
  const Fault fault = fault_of(result);
  const bool told = fault == Fault::driver_missing || fault == Fault::driver_too_old || fault == Fault::out_of_memory;
  throw GpuError(told ? fault : Fault::no_device, result_name(result) + " from cuInit");
}

// Asked for by version, the driver gives the form of a function that our declarations describe, whatever it has added since.
template <typename... Parameters>
void Driver::resolve(DriverCall<Parameters...>& call, const char* symbol) {
  void* found = nullptr;
  int status = 0;
  if (by_name_ == nullptr || by_name_(call.name_, &found, kOldestDriver, kLegacyStream, &status) != kCudaSuccess) found = nullptr;
  if (found == nullptr) found = dlsym(library_, symbol);
  if (found == nullptr) throw GpuError(Fault::driver_missing, std::string("the NVIDIA driver has no ") + symbol);
  call.function_ = reinterpret_cast<CuResult (*)(Parameters...)>(found);
}

std::string Driver::result_name(CuResult result) const {
  const char* name = nullptr;
  if (error_name_ != nullptr && error_name_(result, &name) == kCudaSuccess && name != nullptr) return name;
  return "CUDA error " + std::to_string(result);
}

}  // namespace toktier::gpu
