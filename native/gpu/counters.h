// What a GPU engine has done since it was opened. Counted by any number of threads at once.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "device/abi.h"

namespace toktier::gpu {

// bit of TtLeft, reason code
#define TT_LEFT_REASONS(X)                    \
  X(TT_LEFT_MALFORMED, R_GPU_MALFORMED)       \
  X(TT_LEFT_NORMALIZED, R_INPUT_NORMALIZED)   \
  X(TT_LEFT_OVERLAP, R_GPU_ADDED_OVERLAP)     \
  X(TT_LEFT_FLAGS, R_GPU_ADDED_FLAGS)         \
  X(TT_LEFT_GIANT, R_GPU_GIANT_PIECE)

constexpr unsigned kLeftReasons = 5;
extern const tt_u32 left_bits[kLeftReasons];
extern const char* const left_reasons[kLeftReasons];

struct Counters {
  using Count = std::atomic<std::uint64_t>;
  Count texts{0}, bytes{0};        // that calls gave
  Count device_texts{0};           // all of whose ids came from the device; not the empty ones
  Count device_documents{0};       // the same of documents, the parts of a text being several
  Count chunks{0};                 // that the device has finished
  Count redone[kLeftReasons]{};    // documents that a kernel left to the CPU, by reason
  Count uncut{0};                  // ends of texts that nothing cuts into chunks
  Count fallen{0};                 // documents that the CPU did because the device did not
  Count faults{0};
};

}  // namespace toktier::gpu
