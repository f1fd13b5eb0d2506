// A lane: one stream, page-locked memory for what goes to the device and what comes back, and memory on it for every array of a
// chunk. Made once; a run allocates nothing. One call uses a lane at a time, under a CurrentContext.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "buffers.h"
#include "chunk.h"
#include "device.h"
#include "patience.h"
#include "splice.h"

namespace toktier::gpu {

// Told after each step of a run has been queued; `step` is `h2d`, the name of a kernel, or `d2h`.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void queued(const char* step, CuStream stream) = 0;
};

class Lane {
 public:
  // For chunks of up to `most_bytes` of text and `most_documents`. Throws GpuError.
  Lane(const Device& device, std::size_t most_bytes, std::size_t most_documents, Patience patience);

  static std::size_t device_bytes(std::size_t most_bytes, std::size_t most_documents);
  static std::size_t host_bytes(std::size_t most_bytes, std::size_t most_documents);

  Chunk& chunk() { return chunk_; }
  // Queues the run of the chunk, which has documents; `ids_here`: the ids are wanted on the host. Throws GpuError; what was
  // queued until then must be waited for.
  void start(const TtGpuTables& tables, bool plain, bool ids_here, StepObserver* observer = nullptr);
  // Waits for it. Throws GpuError where the run failed or hangs, or what came back cannot be. Valid until the next start().
  DeviceRows finish();
  // Waits for whatever is queued. False where the device is lost or given up.
  bool settle() noexcept { return gpu::settle(driver_, stream_.get(), patience_.of(chunk_.size)); }

  CuStream stream() const { return stream_.get(); }

 private:
  void copy_in();
  void launch(TtKernel which, TtGpuParams& params);
  void copy_out(std::size_t from, std::size_t count);
  CuPointer device_ids() const { return reinterpret_cast<CuPointer>(placed_.buffers.ids); }

  const Device& device_;
  const Driver& driver_;
  const Patience patience_;
  DeviceMemory memory_;
  HostMemory input_, flags_, rows_;
  Stream stream_;
  Chunk chunk_;
  PlacedBuffers placed_{};
  bool ids_here_ = true;          // of this run
  std::size_t copied_ids_ = 0;    // of this run
  std::size_t ids_per_1024_ = 0;  // bytes of text, as far as the last run tells
};

}  // namespace toktier::gpu
