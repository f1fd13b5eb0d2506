// Ids that stay on the device, in memory of their own that outlives the engine; and the sink that collects them there: runs of
// documents are copied within the device, and only what the CPU engine or a template adds goes there from here.
// A template costs two small copies a text: whoever wants the device to be fast puts the special tokens around by himself.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device.h"
#include "splice.h"

namespace toktier::gpu {

class DeviceIds {
 public:
  DeviceIds(std::shared_ptr<const Device> device, DeviceMemory memory, std::size_t count);
  ~DeviceIds();
  DeviceIds(const DeviceIds&) = delete;
  DeviceIds& operator=(const DeviceIds&) = delete;

  CuPointer data() const { return memory_.get(); }
  std::size_t count() const { return count_; }
  int ordinal() const { return device_->facts().ordinal; }

 private:
  const std::shared_ptr<const Device> device_;
  DeviceMemory memory_;
  const std::size_t count_;
};

// Used under a CurrentContext. Its methods throw GpuError.
class DeviceIdSink : public IdSink {
 public:
  explicit DeviceIdSink(std::shared_ptr<const Device> device);

  bool wants_ids_here() const override { return false; }
  void reserve(std::size_t texts, std::size_t ids) override;
  void append(const std::uint32_t* ids, std::size_t n) override;
  void append_from(const DeviceRows& from, std::size_t begin, std::size_t n) override;
  void end_row() override { row_splits_.push_back(total_); }
  void end_chunk(const DeviceRows* from) override;

  std::unique_ptr<DeviceIds> take();
  std::vector<std::uint64_t> take_row_splits() { return std::move(row_splits_); }

 private:
  void make_room(std::size_t n);  // for n more ids
  CuPointer next(std::size_t n);  // where they go
  void flush_here();
  void flush_run();

  const std::shared_ptr<const Device> device_;
  const Driver& driver_;
  Stream growth_;  // of copies into larger memory
  DeviceMemory memory_;
  std::size_t capacity_ = 0, copied_ = 0, total_ = 0;  // ids; `copied_` of them are queued or there
  // What is not copied yet: ids of here, or a run of ids of a chunk.
  std::vector<std::uint32_t> here_;
  const DeviceRows* from_ = nullptr;
  std::size_t run_begin_ = 0, run_end_ = 0;
  std::vector<std::uint64_t> row_splits_{0};
};

}  // namespace toktier::gpu
