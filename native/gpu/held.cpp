// What is asked of the driver for each.
#include "held.h"

namespace toktier::gpu {

DeviceMemory allocate_device(const Driver& driver, std::size_t bytes) {
  CuPointer at = 0;
  driver.cuMemAlloc(&at, bytes);
  return {driver, at};
}

HostMemory allocate_host(const Driver& driver, std::size_t bytes) {
  void* at = nullptr;
  driver.cuMemHostAlloc(&at, bytes, kHostPortable);
  return {driver, at};
}

Stream make_stream(const Driver& driver) {
  CuStream stream = nullptr;
  driver.cuStreamCreate(&stream, kStreamNonBlocking);
  return {driver, stream};
}

Event make_event(const Driver& driver, unsigned flags) {
  CuEvent event = nullptr;
  driver.cuEventCreate(&event, flags);
  return {driver, event};
}

}  // namespace toktier::gpu
