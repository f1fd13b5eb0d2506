// A lane while a call has it: faults are noted where they happen, and the lane goes back when nothing of it runs any more.
#pragma once
#include "engine.h"
#include "engine_resources.h"

namespace toktier::gpu {

class Engine::Run {
 public:
  Run(Engine& engine, Lane& lane) : engine_(engine), lane_(lane) {}
  ~Run() {
    if (queued_) rest();
    engine_.give_back(&lane_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Chunk& chunk() { return lane_.chunk(); }
  CuStream stream() const { return lane_.stream(); }

  // False after a fault; then finish() gives null. The documents are still there, for the CPU engine.
  bool start(bool plain, bool ids_here, StepObserver* observer = nullptr) {
    if (chunk().documents() == 0) return true;
    device().run_begins();
    queued_ = true;
    try {
      lane_.start(engine_.resources_->tables, plain, ids_here, observer);
      return true;
    } catch (const GpuError& error) {
      return fail(error);
    }
  }
  const DeviceRows* finish() {
    if (!queued_ || failed_) return nullptr;
    try {
      rows_ = lane_.finish();
      queued_ = false;
      device().run_ends();
      ++engine_.counters_.chunks;
      return &rows_;
    } catch (const GpuError& error) {
      fail(error);
      return nullptr;
    }
  }

 private:
  const Device& device() const { return *engine_.resources_->device; }

  // After a fault: whatever is queued ends before the lane serves again. One that hangs never does, and no lane serves any more.
  void rest() noexcept {
    if (!lane_.settle() && !failed_for_good_)
      engine_.note(GpuError(Fault::device_lost, "the device did not come to rest after a fault"));
    device().run_ends();
  }

  bool fail(const GpuError& error) {
    engine_.note(error);
    failed_ = true;
    failed_for_good_ = error.fault() == Fault::hung || error.fault() == Fault::device_lost;
    return false;
  }

  Engine& engine_;
  Lane& lane_;
  DeviceRows rows_{};
  bool queued_ = false, failed_ = false, failed_for_good_ = false;
};

}  // namespace toktier::gpu
