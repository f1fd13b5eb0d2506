// Ids that stay on the device, in memory of their own that outlives the engine; and the sink that collects them there: runs of
// documents are copied within the device, and only what the CPU engine or a template adds goes there from here.
// Where rows begin is known to the host as soon as the kernels have ended; the copies may still be under way then. The sink's
// own stream goes on behind all of them, and so does any stream that waits for it.
// A template costs two small copies a text: whoever wants the device to be fast puts the special tokens around by himself.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device.h"
#include "patience.h"
#include "splice.h"

namespace toktier::gpu {

// Ids of the CPU engine and of templates. A device that reaches memory of the host by itself reads them when the turn of the copy
// comes, and not when it is queued.
using HostIds = std::unique_ptr<std::vector<std::uint32_t>>;

// Freed when no run of ours is under way. Whoever reads the ids in a stream ends that before this ends.
class DeviceIds {
 public:
  // `copies`: of ids to `memory`, which end with `ready`, some of them from `here`. `stream`: of the caller, which waits for
  // them; none: they have ended.
  DeviceIds(std::shared_ptr<const Device> device, DeviceMemory memory, std::size_t capacity, std::size_t count, HostIds here,
            Stream copies, Event ready, std::optional<CuStream> stream);
  ~DeviceIds();
  DeviceIds(const DeviceIds&) = delete;
  DeviceIds& operator=(const DeviceIds&) = delete;

  CuPointer data() const { return memory_.get(); }
  std::size_t count() const { return count_; }
  int ordinal() const { return device_->facts().ordinal; }
  // In which the ids are complete for what is queued from now on. None: everywhere.
  std::optional<CuStream> stream() const { return stream_; }
  // The same for another stream, which waits for the copies. Throws GpuError.
  void complete_in(CuStream stream) const;

 private:
  const std::shared_ptr<const Device> device_;
  DeviceMemory memory_;
  const std::size_t capacity_, count_;  // ids
  HostIds here_;
  Stream copies_;
  Event ready_;
  const std::optional<CuStream> stream_;
};

// Used under a CurrentContext. Its methods throw GpuError.
class DeviceIdSink : public IdSink {
 public:
  // `patience`: with copies.
  DeviceIdSink(std::shared_ptr<const Device> device, Nanoseconds patience);
  ~DeviceIdSink() override;

  bool wants_ids_here() const override { return false; }
  void reserve(std::size_t texts, std::size_t ids) override;
  void append(const std::uint32_t* ids, std::size_t n) override;
  void append_from(const DeviceRows& from, std::size_t begin, std::size_t n) override;
  void end_row() override { row_splits_.push_back(total_); }
  void end_chunk(const DeviceRows* from) override;

  // `stream`: of the caller, that is to wait for the copies; none: this does.
  std::unique_ptr<DeviceIds> take(std::optional<CuStream> stream);
  std::vector<std::uint64_t> take_row_splits() { return std::move(row_splits_); }

 private:
  // Ids of the host, which lie in `here_` one behind the other, and where they go.
  struct Piece {
    std::size_t at, count;
  };

  void make_room(std::size_t end);  // for ids up to there
  void flush_run();
  void join(CuStream stream);  // the own stream goes on behind what is queued in that one
  CuPointer place(std::size_t at) const;

  const std::shared_ptr<const Device> device_;
  const Driver& driver_;
  const Nanoseconds patience_;
  Stream copies_;
  Event joined_;
  DeviceMemory memory_;
  std::size_t capacity_ = 0, total_ = 0;  // ids
  std::size_t copied_ = 0;                // behind the last one that a copy within the device was queued for
  HostIds here_ = std::make_unique<std::vector<std::uint32_t>>();
  std::vector<Piece> pieces_;
  // A run of ids of a chunk that is not copied yet: where it lies there, and where it goes.
  const DeviceRows* from_ = nullptr;
  std::size_t run_begin_ = 0, run_end_ = 0, run_at_ = 0;
  std::vector<std::uint64_t> row_splits_{0};
};

}  // namespace toktier::gpu
