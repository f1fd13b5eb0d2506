// Queues copies and kernels of a chunk in the order in which they depend on each other.
#include "lane.h"

#include <algorithm>
#include <cstring>

namespace toktier::gpu {

namespace {

enum class Work : unsigned char { DOCUMENTS, TILES, QUEUE };

constexpr Work kWork[] = {
#define TT_X(name, work) Work::work,
    TT_KERNELS(TT_X)
#undef TT_X
};

// Ids of a chunk of which nothing is known: about as many as prose of one language has. What is missing is copied afterwards.
constexpr std::size_t kIdsPer1024 = 320;

constexpr std::size_t kIdBytes = sizeof(std::uint32_t);

std::size_t flags_room(std::size_t most_documents) { return (TT_CONTROL_WORDS + most_documents) * sizeof(std::uint32_t); }
std::size_t rows_room(std::size_t most_bytes, std::size_t most_documents) {
  return (most_documents + 1 + most_bytes) * kIdBytes;
}

}  // namespace

std::size_t Lane::device_bytes(std::size_t most_bytes, std::size_t most_documents) {
  return place_buffers(0, most_bytes, most_documents).total_bytes;
}

std::size_t Lane::host_bytes(std::size_t most_bytes, std::size_t most_documents) {
  return place_buffers(0, most_bytes, most_documents).input_bytes + flags_room(most_documents) +
         rows_room(most_bytes, most_documents);
}

Lane::Lane(const Device& device, std::size_t most_bytes, std::size_t most_documents, Patience patience)
    : device_(device),
      driver_(device.driver()),
      patience_(patience),
      memory_(allocate_device(driver_, device_bytes(most_bytes, most_documents))),
      input_(allocate_host(driver_, place_buffers(0, most_bytes, most_documents).input_bytes)),
      flags_(allocate_host(driver_, flags_room(most_documents))),
      rows_(allocate_host(driver_, rows_room(most_bytes, most_documents))),
      stream_(make_stream(driver_)),
      ids_per_1024_(kIdsPer1024) {
  chunk_.text = static_cast<std::uint8_t*>(input_.get());
}

void Lane::start(const TtGpuTables& tables, bool plain, bool ids_here, StepObserver* observer) {
  const std::size_t n = chunk_.size, n_docs = chunk_.documents();
  placed_ = place_buffers(memory_.get(), n, n_docs);
  const auto queued = [&](const char* step) {
    if (observer != nullptr) observer->queued(step, stream_.get());
  };
  copy_in();
  queued("h2d");
  TtGpuParams params{};
  params.tables = tables;
  params.buffers = placed_.buffers;
  params.n = tt_u32(n);
  params.n_docs = tt_u32(n_docs);
  params.n_words = tt_u32(text_words(n));
  params.n_tiles = tt_u32(text_tiles(n));
  params.plain = plain ? 1 : 0;
  for (tt_u32 k = 0; k < TT_KERNEL_COUNT; ++k) {
    if (k == TT_KERNEL_tt_characters || k == TT_KERNEL_tt_offsets) continue;  // nobody asks a device for offsets
    launch(TtKernel(k), params);
    queued(kernel_name(TtKernel(k)));
  }
  driver_.cuMemcpyDtoHAsync(flags_.get(), memory_.get() + placed_.zero_begin, placed_.flags_bytes, stream_.get());
  driver_.cuMemcpyDtoHAsync(rows_.get(), memory_.get() + placed_.row_begin, placed_.row_bytes, stream_.get());
  ids_here_ = ids_here;
  copied_ids_ = 0;
  if (ids_here) copy_out(0, std::min(n, n * (ids_per_1024_ + ids_per_1024_ / 8) / 1024 + 64));
  queued("d2h");
}

void Lane::copy_in() {
  std::uint8_t* const input = chunk_.text;
  std::memset(input + chunk_.size, 0, placed_.doc_begin - chunk_.size);
  auto* const begin = reinterpret_cast<std::uint32_t*>(input + placed_.doc_begin);
  *std::copy(chunk_.begin.begin(), chunk_.begin.end(), begin) = std::uint32_t(chunk_.size);
  driver_.cuMemcpyHtoDAsync(memory_.get(), input, placed_.input_bytes, stream_.get());
  driver_.cuMemsetD8Async(memory_.get() + placed_.zero_begin, 0, placed_.zero_bytes, stream_.get());
}

void Lane::launch(TtKernel which, TtGpuParams& params) {
  unsigned blocks = params.n_tiles;
  if (kWork[which] == Work::DOCUMENTS) blocks = params.n_docs / TT_TILE_THREADS + 1;  // n_docs + 1 places
  if (kWork[which] == Work::QUEUE) blocks = std::min(device_.kernel(which).blocks, params.n / TT_WORD_BYTES + 1);
  void* arguments[] = {&params};
  driver_.cuLaunchKernel(device_.kernel(which).handle, blocks, 1, 1, TT_TILE_THREADS, 1, 1, 0, stream_.get(), arguments, nullptr);
}

void Lane::copy_out(std::size_t from, std::size_t count) {
  if (count == 0) return;
  auto* const ids = static_cast<std::uint32_t*>(rows_.get()) + chunk_.documents() + 1;
  driver_.cuMemcpyDtoHAsync(ids + from, device_ids() + from * kIdBytes, count * kIdBytes, stream_.get());
  copied_ids_ += count;
}

DeviceRows Lane::finish() {
  wait_for(driver_, stream_.get(), patience_.of(chunk_.size));
  const auto* const control = static_cast<const std::uint32_t*>(flags_.get());
  const auto* const row = static_cast<const std::uint32_t*>(rows_.get());
  const std::size_t n_docs = chunk_.documents(), count = control[TT_CONTROL_IDS];
  bool sound = count <= chunk_.size && row[0] == 0 && row[n_docs] == count;
  for (std::size_t d = 0; d < n_docs && sound; ++d) sound = row[d] <= row[d + 1];
  if (!sound) throw GpuError(Fault::launch_failed, "the kernels gave rows that are not in order");
  ids_per_1024_ = count * 1024 / chunk_.size + 1;
  if (ids_here_ && count > copied_ids_) {
    copy_out(copied_ids_, count - copied_ids_);
    wait_for(driver_, stream_.get(), patience_.of(0));
  }
  return {control + TT_CONTROL_WORDS, row, ids_here_ ? row + n_docs + 1 : nullptr, device_ids(), stream_.get()};
}

}  // namespace toktier::gpu
