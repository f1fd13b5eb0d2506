// The kernels of a program in their order on one chunk, under the emulator, for tests: buffers of exactly the sizes of abi.h,
// each poisoned and guarded on its own, then the launches that a host makes. A C interface, so that Python calls it.
// Not here: lanes, streams and splicing, which are native/gpu's.
#pragma once
#include <cstdint>

extern "C" {

struct PipelineInput {
  const std::uint8_t* image;  // of `_native.device_tables`
  std::uint64_t image_bytes;
  const std::uint8_t* text;
  const std::uint32_t* doc_begin;  // [n_docs + 1], the last one is n
  std::uint32_t n, n_docs;
  std::uint32_t plain, offsets;
  const char* last;  // name of the last kernel that runs
  std::uint64_t seed;
  std::uint32_t resident_blocks, shuffled_blocks;
};

// Copied out of the buffers; null: not wanted.
struct PipelineOutput {
  std::uint32_t* doc_flags;  // [n_docs]
  std::uint32_t* bounds;     // [ceil(n / 32) + 1]
  std::uint32_t* dropped;    // [ceil(n / 32)]
  std::uint32_t* covered;    // [ceil(n / 32)]
  std::uint32_t* tokens;     // [ceil(n / 32) + 1]
  std::uint32_t* token_id;   // [n]
  std::uint32_t* control;    // [TT_CONTROL_WORDS]
  std::uint32_t* ids;        // [n]
  std::uint32_t* row;        // [n_docs + 1]
  std::uint32_t* offset_begin;  // [n]
  std::uint32_t* offset_end;
};

// 0, or not: then `report` says what the emulator found, or which buffer was written outside of.
int pipeline_run(const PipelineInput* input, const PipelineOutput* output, char* report, std::uint64_t report_bytes);
}
