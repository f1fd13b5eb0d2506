// How long each step of one run takes, by events of the driver between them.
#include "engine_run.h"

namespace toktier::gpu {

namespace {

class Steps : public StepObserver {
 public:
  Steps(const Driver& driver, CuStream stream) : driver_(driver) { mark("", stream); }
  void queued(const char* step, CuStream stream) override { mark(step, stream); }

  std::vector<std::pair<std::string, float>> milliseconds() const {
    std::vector<std::pair<std::string, float>> steps;
    for (std::size_t k = 1; k < marks_.size(); ++k) {
      float elapsed = 0;
      driver_.cuEventElapsedTime(&elapsed, marks_[k - 1].second.get(), marks_[k].second.get());
      steps.emplace_back(marks_[k].first, elapsed);
    }
    return steps;
  }

 private:
  void mark(const char* step, CuStream stream) {
    marks_.emplace_back(step, make_event(driver_, kEventTiming));
    driver_.cuEventRecord(marks_.back().second.get(), stream);
  }

  const Driver& driver_;
  std::vector<std::pair<const char*, Event>> marks_;
};

}  // namespace

std::vector<std::pair<std::string, float>> Engine::time(TextSource& texts) {
  const Entered entered(*this);
  Lane* const lane = entered.on_device() ? take(true) : nullptr;
  if (lane == nullptr) throw refusal();
  Run run(*this, *lane);
  Packer packer(*program_, contexts_, texts, false, facts_.lane_bytes, facts_.lane_documents);
  packer.fill(run.chunk());
  packer.rethrow();
  if (run.chunk().documents() == 0) return {};
  Steps steps(resources_->device->driver(), run.stream());
  if (!run.start(false, true, &steps) || run.finish() == nullptr) throw *last_fault();
  return steps.milliseconds();
}

}  // namespace toktier::gpu
