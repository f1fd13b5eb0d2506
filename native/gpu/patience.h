// Waiting for a stream, but not for ever. A call of the driver that waits for a kernel that hangs never comes back, so the driver
// is asked again and again whether the stream has ended, up to a bound. Beyond it the device is given up (hung_runs.h): every
// other wait ends too, nothing is asked of it or given back to it any more, and the CPU engine does what is left.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "driver.h"

namespace toktier::gpu {

using Nanoseconds = std::chrono::nanoseconds;

// How long a run may take. Other work of the device, of whoever shares it, may stand before ours.
struct Patience {
  Nanoseconds least = std::chrono::seconds(10);
  std::size_t bytes_per_second = std::size_t(4) << 20;  // of text: a hundredth of what the smallest device does

  // `bytes`: of a run, 4 GiB at most.
  Nanoseconds of(std::size_t bytes) const { return least + Nanoseconds(bytes * 1'000'000'000 / bytes_per_second); }
};

// Until what is queued in the stream has ended. Throws GpuError: what failed there, or hung.
void wait_for(const Driver& driver, CuStream stream, Nanoseconds patience);

// The same where nobody can act on more than this: false where the device is lost or given up.
bool settle(const Driver& driver, CuStream stream, Nanoseconds patience) noexcept;

}  // namespace toktier::gpu
