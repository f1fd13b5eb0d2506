// Opening and closing an engine, and who may use its lanes.
#include <unistd.h>

#include <algorithm>

#include "engine.h"
#include "engine_resources.h"
#include "tables.h"

namespace toktier::gpu {

namespace {

constexpr unsigned kMostLanes = 8;
constexpr std::size_t kLeastLane = std::size_t(1) << 20;  // bytes: where not even this fits, a device is of no use

// Documents for which a lane has room: with shorter ones on average, a chunk is full before its text is.
std::size_t lane_documents(std::size_t lane_bytes) { return lane_bytes / 16 + 64; }

// As much text a lane as was asked for, or the largest half, quarter, ... of it for which there is memory.
std::size_t fitting_lane(std::size_t asked, unsigned lanes, std::size_t free) {
  asked = std::clamp<std::size_t>(asked, TT_TILE_BYTES, TT_MAX_CHUNK);
  const std::size_t budget = free - free / 8;  // others allocate too
  for (std::size_t bytes = asked; bytes >= std::min(asked, kLeastLane); bytes /= 2)
    if (lanes * Lane::device_bytes(bytes, lane_documents(bytes)) <= budget) return bytes;
  throw GpuError(Fault::out_of_memory, "the device has " + std::to_string(free >> 20) + " MiB free, too little for " +
                                           std::to_string(lanes) + " lanes");
}

DeviceTables tables_of(const Program& program) {
  try {
    return make_device_tables(program);
  } catch (const Unsuitable& unsuitable) {
    throw GpuError(Fault::unsuitable_program, unsuitable.what);
  }
}

// A plain copy of ordinary memory may come back while its bytes are under way, and it waits for whatever others have queued; our
// streams do not wait for it. So it has a stream of its own, which is waited for.
DeviceMemory upload(const Driver& driver, const std::vector<std::uint8_t>& image, const Patience& patience) {
  DeviceMemory memory = allocate_device(driver, image.size());
  const Stream stream = make_stream(driver);
  driver.cuMemcpyHtoDAsync(memory.get(), image.data(), image.size(), stream.get());
  wait_for(driver, stream.get(), patience.of(image.size()));
  return memory;
}

}  // namespace

Engine::Resources::~Resources() {
  const Driver& driver = device->driver();
  const bool current = driver.cuCtxPushCurrent.attempt(device->context()) == kCudaSuccess;
  for (const std::unique_ptr<Lane>& lane : lanes) lane->settle();  // copies of ids that stay on the device
  lanes.clear();
  table_memory = {};
  CuContext before;
  if (current) driver.cuCtxPopCurrent.attempt(&before);
}

Engine::Engine(std::shared_ptr<const Program> program, ContextPool& contexts, const std::string& cubin,
               const EngineOptions& options)
    : program_(std::move(program)),
      contexts_(contexts),
      workers_(std::max(1u, options.workers)),
      patience_(options.patience),
      process_(getpid()) {
  try {
    open(cubin, options);
  } catch (const GpuError& error) {
    if (error.fault() != Fault::launch_failed) throw;
    throw GpuError(Fault::load_failed, error.what());
  }
  state_ = State::open;
}

void Engine::open(const std::string& cubin, const EngineOptions& options) {
  const DeviceTables tables = tables_of(*program_);
  auto made = std::make_unique<Resources>(
      std::make_shared<const Device>(std::make_unique<const Driver>(options.driver), options.device, cubin));
  const Device& device = *made->device;
  const Driver& driver = device.driver();
  const CurrentContext current(driver, device.context());
  made->table_memory = upload(driver, tables.image, patience_);
  made->tables = tables_at(tables.image.data(), made->table_memory.get());

  facts_.driver_version = driver.version();
  facts_.device = device.facts();
  for (tt_u32 k = 0; k < TT_KERNEL_COUNT; ++k) facts_.kernels[k] = device.kernel(TtKernel(k));
  facts_.lanes = std::clamp(options.lanes, 1u, kMostLanes);
  facts_.lane_bytes = fitting_lane(options.lane_bytes, facts_.lanes, device.free_bytes());
  facts_.lane_documents = lane_documents(facts_.lane_bytes);
  facts_.table_bytes = tables.image.size();
  facts_.device_bytes = facts_.table_bytes + facts_.lanes * Lane::device_bytes(facts_.lane_bytes, facts_.lane_documents);
  facts_.host_bytes = facts_.lanes * Lane::host_bytes(facts_.lane_bytes, facts_.lane_documents);
  for (unsigned k = 0; k < facts_.lanes; ++k) {
    made->lanes.push_back(std::make_unique<Lane>(device, facts_.lane_bytes, facts_.lane_documents, patience_));
    turns_->idle.push_back(made->lanes.back().get());
  }
  resources_ = std::move(made);
}

// In a child, what the parent holds is left as it lies.
Engine::~Engine() {
  close();
  if (!forked()) return;
  static_cast<void>(resources_.release());
  static_cast<void>(turns_.release());
}

void Engine::close() noexcept {
  if (forked()) return;
  std::unique_lock<std::mutex> lock(turns_->guard);
  state_ = State::closed;
  turns_->changed.notify_all();
  turns_->changed.wait(lock, [this] { return turns_->calls == 0; });
  turns_->idle.clear();
  resources_.reset();
}

bool Engine::forked() const { return getpid() != process_; }

bool Engine::is_open() const { return !forked() && state_ == State::open; }

bool Engine::enter() {
  if (forked()) return false;
  const std::lock_guard<std::mutex> lock(turns_->guard);
  if (state_ != State::open) return false;
  ++turns_->calls;
  return true;
}

void Engine::leave() {
  const std::lock_guard<std::mutex> lock(turns_->guard);
  if (--turns_->calls == 0) turns_->changed.notify_all();
}

Lane* Engine::take(bool wait) {
  std::unique_lock<std::mutex> lock(turns_->guard);
  const auto is_one_free = [this] { return !turns_->idle.empty() && !resources_->device->is_congested(); };
  if (wait) turns_->changed.wait(lock, [&] { return is_one_free() || state_ != State::open; });
  if (state_ != State::open || !is_one_free()) return nullptr;
  Lane* const lane = turns_->idle.back();
  turns_->idle.pop_back();
  return lane;
}

void Engine::give_back(Lane* lane) {
  const std::lock_guard<std::mutex> lock(turns_->guard);
  turns_->idle.push_back(lane);
  turns_->changed.notify_all();
}

void Engine::note(const GpuError& error) {
  ++counters_.faults;
  const std::lock_guard<std::mutex> lock(turns_->guard);
  if (state_ != State::lost) turns_->last_fault = error;  // what comes after a loss only follows from it
  if (error.fault() != Fault::device_lost && error.fault() != Fault::hung) return;
  if (state_ == State::open) state_ = State::lost;
  turns_->changed.notify_all();
}

GpuError Engine::refusal() const {
  if (forked()) return {Fault::forked, "the engine was opened by the parent of this process"};
  return {Fault::closed, state_ == State::lost ? "the engine is closed: its device failed" : "the engine is closed"};
}

std::optional<GpuError> Engine::last_fault() const {
  if (forked()) return refusal();
  const std::lock_guard<std::mutex> lock(turns_->guard);
  return turns_->last_fault;
}

Engine::Entered::Entered(Engine& engine) : engine_(engine), entered_(engine.enter()) {
  if (!entered_) return;
  try {
    const Device& device = *engine.resources_->device;
    current_.emplace(device.driver(), device.context());
  } catch (const GpuError& error) {
    engine.note(error);
  }
}

Engine::Entered::~Entered() {
  current_.reset();
  if (entered_) engine_.leave();
}

}  // namespace toktier::gpu
