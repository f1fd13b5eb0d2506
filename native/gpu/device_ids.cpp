// Copies within the device, as few as the order of documents allows.
#include "device_ids.h"

#include <algorithm>

namespace toktier::gpu {

namespace {

constexpr std::size_t kIdBytes = sizeof(std::uint32_t);

}  // namespace

DeviceIds::DeviceIds(std::shared_ptr<const Device> device, DeviceMemory memory, std::size_t count)
    : device_(std::move(device)), memory_(std::move(memory)), count_(count) {}

DeviceIds::~DeviceIds() {
  const Driver& driver = device_->driver();
  if (!device_->is_here() || driver.cuCtxPushCurrent.attempt(device_->context()) != kCudaSuccess) {
    memory_.leave();
    return;
  }
  memory_ = {};
  CuContext before;
  driver.cuCtxPopCurrent.attempt(&before);
}

DeviceIdSink::DeviceIdSink(std::shared_ptr<const Device> device)
    : device_(std::move(device)), driver_(device_->driver()), growth_(make_stream(driver_)) {}

void DeviceIdSink::reserve(std::size_t texts, std::size_t ids) {
  row_splits_.reserve(texts + 1);
  make_room(std::max<std::size_t>(ids, 1));
}

void DeviceIdSink::make_room(std::size_t n) {
  if (copied_ + n <= capacity_) return;
  const std::size_t wanted = std::max(copied_ + n, capacity_ + capacity_ / 2);
  DeviceMemory larger = allocate_device(driver_, wanted * kIdBytes);
  if (from_ != nullptr) driver_.cuStreamSynchronize(from_->stream);  // copies that are queued there
  if (copied_ != 0) driver_.cuMemcpyDtoDAsync(larger.get(), memory_.get(), copied_ * kIdBytes, growth_.get());
  driver_.cuStreamSynchronize(growth_.get());
  memory_ = std::move(larger);
  capacity_ = wanted;
}

CuPointer DeviceIdSink::next(std::size_t n) {
  make_room(n);
  const CuPointer at = memory_.get() + copied_ * kIdBytes;
  copied_ += n;
  return at;
}

void DeviceIdSink::append(const std::uint32_t* ids, std::size_t n) {
  if (n == 0) return;
  flush_run();
  here_.insert(here_.end(), ids, ids + n);
  total_ += n;
}

void DeviceIdSink::append_from(const DeviceRows& from, std::size_t begin, std::size_t n) {
  if (n == 0) return;
  flush_here();
  if (begin != run_end_) flush_run();
  from_ = &from;
  if (run_begin_ == run_end_) run_begin_ = begin;
  run_end_ = begin + n;
  total_ += n;
}

void DeviceIdSink::flush_here() {
  if (here_.empty()) return;
  const CuPointer at = next(here_.size());
  driver_.cuMemcpyHtoD(at, here_.data(), here_.size() * kIdBytes);
  here_.clear();
}

void DeviceIdSink::flush_run() {
  if (run_begin_ != run_end_) {
    const std::size_t n = run_end_ - run_begin_;
    const CuPointer at = next(n);
    driver_.cuMemcpyDtoDAsync(at, from_->device_ids + run_begin_ * kIdBytes, n * kIdBytes, from_->stream);
  }
  run_begin_ = run_end_ = 0;
}

void DeviceIdSink::end_chunk(const DeviceRows* from) {
  flush_run();
  if (from != nullptr) driver_.cuStreamSynchronize(from->stream);
  from_ = nullptr;
}

std::unique_ptr<DeviceIds> DeviceIdSink::take() {
  flush_here();
  return std::make_unique<DeviceIds>(device_, std::move(memory_), total_);
}

}  // namespace toktier::gpu
