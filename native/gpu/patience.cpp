// Asks at once and often while a run takes as long as runs take, and seldom afterwards.
#include "patience.h"

#include <algorithm>
#include <string>
#include <thread>

#include "hung_runs.h"

namespace toktier::gpu {

namespace {

using Clock = std::chrono::steady_clock;

constexpr Nanoseconds kSpin = std::chrono::milliseconds(2);  // about the run of a chunk: asking costs a microsecond
constexpr Nanoseconds kFirstSleep = std::chrono::microseconds(50), kLongestSleep = std::chrono::milliseconds(1);

GpuError hung(const std::string& how) { return {Fault::hung, how + ": the device is left alone from now on"}; }

std::string seconds_text(Nanoseconds time) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(time).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

void wait_for(const Driver& driver, CuStream stream, Nanoseconds patience) {
  const Clock::time_point begin = Clock::now();
  for (Nanoseconds sleep = kFirstSleep;;) {
    if (driver.is_given_up()) throw hung("another run of the device did not end");
    const Nanoseconds waited = Clock::now() - begin;  // before asking: a thread that was held up asks once more
    const CuResult result = driver.cuStreamQuery.attempt(stream);
    if (result != kNotReady) return check_result(driver, result, "cuStreamQuery");
    if (waited > patience) {
      give_up_device(driver, stream);
      throw hung("a run did not end within " + seconds_text(patience));
    }
    if (waited < kSpin) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(sleep);
    sleep = std::min(2 * sleep, kLongestSleep);
  }
}

bool settle(const Driver& driver, CuStream stream, Nanoseconds patience) noexcept {
  try {
    wait_for(driver, stream, patience);
    return true;
  } catch (const GpuError& error) {
    return error.fault() != Fault::device_lost && error.fault() != Fault::hung;
  } catch (...) {
    return false;  // no memory for a message
  }
}

}  // namespace toktier::gpu
