// Copies within the device, as few as the order of documents allows.
#include "device_ids.h"

#include <algorithm>
#include <utility>

namespace toktier::gpu {

namespace {

constexpr std::size_t kIdBytes = sizeof(std::uint32_t);

// Before calls of the driver that may wait by themselves.
void demand_life(const Driver& driver) {
  if (driver.is_given_up()) throw GpuError(Fault::hung, "a run of the device did not end");
}

// Copies that hang may still read it.
void leave_if_read(const Driver& driver, HostIds& here) {
  if (driver.is_given_up()) static_cast<void>(here.release());
}

}  // namespace

DeviceIds::DeviceIds(std::shared_ptr<const Device> device, DeviceMemory memory, std::size_t capacity, std::size_t count,
                     HostIds here, Stream copies, Event ready, std::optional<CuStream> stream)
    : device_(std::move(device)),
      memory_(std::move(memory)),
      capacity_(capacity),
      count_(count),
      here_(std::move(here)),
      copies_(std::move(copies)),
      ready_(std::move(ready)),
      stream_(stream) {}

DeviceIds::~DeviceIds() {
  const Driver& driver = device_->driver();
  if (!device_->is_here() || driver.cuCtxPushCurrent.attempt(device_->context()) != kCudaSuccess) {
    memory_.leave();
    copies_.leave();
    ready_.leave();
    return;
  }
  settle(driver, copies_.get(), Patience{}.of(capacity_ * kIdBytes));
  leave_if_read(driver, here_);
  device_->discard(std::move(memory_), capacity_ * kIdBytes);
  copies_ = {};
  ready_ = {};
  CuContext before;
  driver.cuCtxPopCurrent.attempt(&before);
}

void DeviceIds::complete_in(CuStream stream) const {
  if (!stream_ || stream == *stream_) return;
  const Driver& driver = device_->driver();
  demand_life(driver);
  const CurrentContext current(driver, device_->context());
  driver.cuStreamWaitEvent(stream, ready_.get(), 0);
}

DeviceIdSink::DeviceIdSink(std::shared_ptr<const Device> device, Nanoseconds patience)
    : device_(std::move(device)),
      driver_(device_->driver()),
      patience_(patience),
      copies_(make_stream(driver_)),
      joined_(make_event(driver_)) {}

DeviceIdSink::~DeviceIdSink() {
  if (here_ != nullptr && !here_->empty()) {  // not taken: copies of it may be queued
    settle(driver_, copies_.get(), patience_);
    leave_if_read(driver_, here_);
  }
  device_->discard(std::move(memory_), capacity_ * kIdBytes);
}

CuPointer DeviceIdSink::place(std::size_t at) const { return memory_.get() + at * kIdBytes; }

void DeviceIdSink::reserve(std::size_t texts, std::size_t ids) {
  row_splits_.reserve(texts + 1);
  make_room(std::max<std::size_t>(ids, 1));
}

void DeviceIdSink::make_room(std::size_t end) {
  if (end <= capacity_) return;
  demand_life(driver_);
  const std::size_t wanted = std::max(end, capacity_ + capacity_ / 2);
  DeviceMemory larger = allocate_device(driver_, wanted * kIdBytes);
  if (copied_ != 0) {
    if (from_ != nullptr) join(from_->stream);
    driver_.cuMemcpyDtoDAsync(larger.get(), memory_.get(), copied_ * kIdBytes, copies_.get());
    wait_for(driver_, copies_.get(), patience_);
  }
  std::swap(memory_, larger);
  device_->discard(std::move(larger), std::exchange(capacity_, wanted) * kIdBytes);
}

void DeviceIdSink::join(CuStream stream) {
  driver_.cuEventRecord(joined_.get(), stream);
  driver_.cuStreamWaitEvent(copies_.get(), joined_.get(), 0);
}

void DeviceIdSink::append(const std::uint32_t* ids, std::size_t n) {
  if (n == 0) return;
  flush_run();
  if (pieces_.empty() || pieces_.back().at + pieces_.back().count != total_) pieces_.push_back({total_, 0});
  pieces_.back().count += n;
  here_->insert(here_->end(), ids, ids + n);
  total_ += n;
}

void DeviceIdSink::append_from(const DeviceRows& from, std::size_t begin, std::size_t n) {
  if (n == 0) return;
  if (begin != run_end_) flush_run();
  from_ = &from;
  if (run_begin_ == run_end_) {
    run_begin_ = begin;
    run_at_ = total_;
  }
  run_end_ = begin + n;
  total_ += n;
}

void DeviceIdSink::flush_run() {
  if (run_begin_ == run_end_) return;
  const std::size_t n = run_end_ - run_begin_;
  make_room(run_at_ + n);
  driver_.cuMemcpyDtoDAsync(place(run_at_), from_->device_ids + run_begin_ * kIdBytes, n * kIdBytes, from_->stream);
  copied_ = run_at_ + n;
  run_begin_ = run_end_ = 0;
}

// The next run of the lane writes over its ids behind these copies, in its own stream.
void DeviceIdSink::end_chunk(const DeviceRows* from) {
  flush_run();
  if (from != nullptr) join(from->stream);
  from_ = nullptr;
}

std::unique_ptr<DeviceIds> DeviceIdSink::take(std::optional<CuStream> stream) {
  make_room(total_);
  demand_life(driver_);
  const std::uint32_t* from = here_->data();
  for (const Piece& piece : pieces_) {
    driver_.cuMemcpyHtoDAsync(place(piece.at), from, piece.count * kIdBytes, copies_.get());
    from += piece.count;
  }
  Event ready = make_event(driver_);
  driver_.cuEventRecord(ready.get(), copies_.get());
  if (stream)
    driver_.cuStreamWaitEvent(*stream, ready.get(), 0);
  else
    wait_for(driver_, copies_.get(), patience_);
  if (!stream || here_->empty()) here_.reset();  // all is copied
  return std::make_unique<DeviceIds>(device_, std::move(memory_), std::exchange(capacity_, 0), total_, std::move(here_),
                                     std::move(copies_), std::move(ready), stream);
}

}  // namespace toktier::gpu
