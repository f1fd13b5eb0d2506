// The ids of a call, put together in the order of its texts: what the device gave, what the CPU engine gave for documents that
// are not the device's, and the template's around each text.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunk.h"
#include "driver.h"
#include "engine/engine.h"

namespace toktier::gpu {

// What the device wrote for a chunk, by document.
struct DeviceRows {
  const std::uint32_t* flags;  // TtLeft
  const std::uint32_t* row;    // [documents + 1]
  const std::uint32_t* ids;    // null where they were to stay on the device
  CuPointer device_ids;
  CuStream stream;             // whose next run writes over them
};

// Where ids go, one text after the other.
class IdSink {
 public:
  virtual ~IdSink() = default;
  virtual bool wants_ids_here() const = 0;  // DeviceRows::ids
  virtual void reserve(std::size_t texts, std::size_t ids) = 0;
  virtual void append(const std::uint32_t* ids, std::size_t n) = 0;
  virtual void append_from(const DeviceRows& from, std::size_t begin, std::size_t n) = 0;
  virtual void end_row() = 0;
  virtual void end_chunk(const DeviceRows* from) = 0;  // before the lane serves another one
};

// Growing arrays of malloc, which a caller may take over.
class Rows : public IdSink {
 public:
  Rows() = default;
  ~Rows() override;
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  bool wants_ids_here() const override { return true; }
  void reserve(std::size_t texts, std::size_t ids) override;  // throws std::bad_alloc, as those below
  void append(const std::uint32_t* ids, std::size_t n) override;
  void append_from(const DeviceRows& from, std::size_t begin, std::size_t n) override { append(from.ids + begin, n); }
  void end_row() override;
  void end_chunk(const DeviceRows*) override {}

  std::size_t rows() const { return rows_; }
  std::size_t total() const { return total_; }
  const std::uint32_t* ids() const { return ids_; }
  const std::uint64_t* row_splits() const { return splits_; }  // [rows + 1]
  std::uint32_t* take_ids();
  std::uint64_t* take_row_splits();

 private:
  std::uint32_t* ids_ = nullptr;
  std::uint64_t* splits_ = nullptr;
  std::size_t total_ = 0, room_ = 0, rows_ = 0, row_room_ = 0;
};

struct SpliceCounts {
  std::size_t texts = 0, device_texts = 0, device_documents = 0, uncut = 0;
  bool all_device = true;  // of the text that goes on in the next chunk, so far
};

// Appends the ids of a chunk. `from`: null where the device gave nothing; `by_cpu`: of each document that is not the device's, in
// order. `around`: what the template puts around a text.
void splice(const Chunk& chunk, const DeviceRows* from, const std::vector<std::vector<std::uint32_t>>& by_cpu,
            const IdsAround& around, IdSink& sink, SpliceCounts& counts);

}  // namespace toktier::gpu
