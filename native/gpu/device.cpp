// Opens a device, loads the cubin and compares what it was made for with this host.
#include "device.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "hung_runs.h"

namespace toktier::gpu {

namespace {

constexpr tt_u32 kAbi[] = TT_ABI_BLOCK;
static_assert(std::size(kAbi) == TT_ABI_WORDS);

constexpr std::size_t kMostDiscarded = std::size_t(256) << 20;  // bytes that may wait for a moment without a run

std::string listed(const tt_u32* words) {
  std::string text;
  for (tt_u32 i = 0; i < TT_ABI_WORDS; ++i) text += (i == 0 ? "" : " ") + std::to_string(words[i]);
  return text;
}

}  // namespace

const char* kernel_name(TtKernel which) {
  static const char* const names[] = {
#define TT_X(name, work) #name,
      TT_KERNELS(TT_X)
#undef TT_X
  };
  return names[which];
}

DeviceFacts find_device(const Driver& driver, int ordinal) {
  DeviceFacts facts{};
  driver.cuDeviceGetCount(&facts.devices);
  if (ordinal < 0 || ordinal >= facts.devices)
    throw GpuError(Fault::no_device, "there is no device " + std::to_string(ordinal) + ": the driver lists " +
                                         std::to_string(facts.devices));
  facts.ordinal = ordinal;
  driver.cuDeviceGet(&facts.handle, ordinal);
  char name[256] = "";
  driver.cuDeviceGetName(name, sizeof name - 1, facts.handle);
  facts.name = name;
  driver.cuDeviceGetAttribute(&facts.major, kComputeMajor, facts.handle);
  driver.cuDeviceGetAttribute(&facts.minor, kComputeMinor, facts.handle);
  driver.cuDeviceGetAttribute(&facts.multiprocessors, kMultiprocessors, facts.handle);
  driver.cuDeviceTotalMem(&facts.memory_bytes, facts.handle);
  return facts;
}

Device::Device(std::unique_ptr<const Driver> driver, int ordinal, const std::string& cubin)
    : driver_(std::move(driver)), process_(getpid()), facts_(find_device(*driver_, ordinal)) {
  driver_->cuDevicePrimaryCtxRetain(&context_, facts_.handle);
  try {
    const CurrentContext current(*driver_, context_);
    join_device(*driver_, ordinal);
    load(cubin);
  } catch (...) {
    release();
    throw;
  }
}

Device::~Device() { release(); }

bool Device::is_here() const { return getpid() == process_; }

void Device::release() noexcept {
  if (!is_here()) return;
  leave_device(*driver_);
  if (driver_->is_given_up()) return;
  if (library_ != nullptr && driver_->cuCtxPushCurrent.attempt(context_) == kCudaSuccess) {
    driver_->cuLibraryUnload.attempt(library_);
    CuContext before;
    driver_->cuCtxPopCurrent.attempt(&before);
  }
  driver_->cuDevicePrimaryCtxRelease.attempt(facts_.handle);
}

void Device::load(const std::string& cubin) {
  driver_->cuLibraryLoadData(&library_, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  CuPointer block = 0;
  std::size_t bytes = 0;
  driver_->cuLibraryGetGlobal(&block, &bytes, library_, "tt_abi");
  tt_u32 words[TT_ABI_WORDS] = {};
  if (bytes == sizeof words) driver_->cuMemcpyDtoH(words, block, sizeof words);
  if (bytes != sizeof words || !std::equal(std::begin(words), std::end(words), kAbi))
    throw GpuError(Fault::abi_mismatch, "the kernels were built for another version of toktier: their block of " +
                                            std::to_string(bytes) + " bytes reads [" + listed(words) + "], expected [" +
                                            listed(kAbi) + "]");
  for (tt_u32 k = 0; k < TT_KERNEL_COUNT; ++k) {
    KernelFacts& kernel = kernels_[k];
    driver_->cuLibraryGetKernel(&kernel.handle, library_, kernel_name(TtKernel(k)));
    driver_->cuKernelGetAttribute(&kernel.registers, kRegisters, kernel.handle, facts_.handle);
    driver_->cuKernelGetAttribute(&kernel.local_bytes, kLocalBytes, kernel.handle, facts_.handle);
    driver_->cuKernelGetAttribute(&kernel.shared_bytes, kSharedBytes, kernel.handle, facts_.handle);
    int resident = 0;
    driver_->cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel.handle, TT_TILE_THREADS, 0);
    if (resident < 1)
      throw GpuError(Fault::load_failed, std::string("no block of ") + kernel_name(TtKernel(k)) + " fits this device");
    kernel.blocks = unsigned(resident) * unsigned(std::max(1, facts_.multiprocessors));
  }
}

std::size_t Device::free_bytes() const {
  std::size_t free = 0, total = 0;
  driver_->cuMemGetInfo(&free, &total);
  return free;
}

void Device::run_begins() const {
  const std::lock_guard<std::mutex> lock(guard_);
  ++runs_;
}

void Device::run_ends() const noexcept {
  const std::lock_guard<std::mutex> lock(guard_);
  if (--runs_ != 0) return;
  discarded_.clear();
  discarded_bytes_ = 0;
}

void Device::discard(DeviceMemory memory, std::size_t bytes) const noexcept {
  const std::lock_guard<std::mutex> lock(guard_);  // no run begins while memory is freed
  DeviceMemory given = std::move(memory);
  if (runs_ == 0) return;
  try {
    discarded_.push_back(std::move(given));
    discarded_bytes_ += bytes;
  } catch (const std::exception&) {
    // The host has no memory to remember it: freed at once, which waits.
  }
}

bool Device::is_congested() const {
  const std::lock_guard<std::mutex> lock(guard_);
  return discarded_bytes_ > kMostDiscarded;
}

}  // namespace toktier::gpu
