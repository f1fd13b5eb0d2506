// The engines of this process by device, and streams that hang. A child of the process has neither: its driver does not start.
#include "hung_runs.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace toktier::gpu {

namespace {

struct Joined {
  const Driver* driver;
  int ordinal;
};
// Left as it lies, so the handle is of no other stream while the process lives.
struct HungStream {
  CuStream stream;
  int ordinal;
};

struct Devices {
  std::mutex guard;  // of the members below
  std::vector<Joined> joined;
  std::vector<HungStream> hung;
};

Devices& devices() {
  static auto* const made = new Devices;  // never destroyed: threads may end engines while the process ends
  return *made;
}

}  // namespace

void join_device(const Driver& driver, int ordinal) {
  Devices& d = devices();
  const std::lock_guard<std::mutex> lock(d.guard);
  for (auto run = d.hung.begin(); run != d.hung.end();) {
    if (run->ordinal != ordinal) {
      ++run;
      continue;
    }
    if (driver.cuStreamQuery.attempt(run->stream) == kNotReady)
      throw GpuError(Fault::hung, "a run that was given up earlier in this process has not ended");
    run = d.hung.erase(run);
  }
  d.joined.push_back({&driver, ordinal});
}

void leave_device(const Driver& driver) noexcept {
  Devices& d = devices();
  const std::lock_guard<std::mutex> lock(d.guard);
  d.joined.erase(std::remove_if(d.joined.begin(), d.joined.end(), [&](const Joined& j) { return j.driver == &driver; }),
                 d.joined.end());
}

void give_up_device(const Driver& driver, CuStream stream) {
  driver.give_up();
  Devices& d = devices();
  const std::lock_guard<std::mutex> lock(d.guard);
  const auto own = std::find_if(d.joined.begin(), d.joined.end(), [&](const Joined& j) { return j.driver == &driver; });
  if (own == d.joined.end()) return;
  for (const Joined& other : d.joined)
    if (other.ordinal == own->ordinal) other.driver->give_up();
  d.hung.push_back({stream, own->ordinal});
}

}  // namespace toktier::gpu
