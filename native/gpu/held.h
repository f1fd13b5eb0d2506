// What the driver gave out, given back where its holder ends; under a CurrentContext. Once a device was given up everything is
// left as it lies: a kernel that hangs may still write there, and the driver would wait for it before it frees anything.
#pragma once
#include <cstddef>
#include <utility>

#include "driver.h"

namespace toktier::gpu {

// `Free`: a call of the driver.
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
    if (handle_ != Handle{} && !driver_->is_given_up()) (driver_->*Free).attempt(handle_);
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
