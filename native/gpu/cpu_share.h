// Texts of a GPU call that the CPU engine encodes: what a kernel flagged, what a fault left undone, what nothing cuts. On
// several threads, which end before the call does, where there is enough of it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace toktier::gpu {

struct CpuText {
  std::string_view text;
  std::size_t item;  // of the call, whose part it may be
  bool continued;    // a part behind the first one
};

// What the CPU engine threw, or a source of texts, for one item of a call.
struct ItemError {
  std::size_t item;
  std::exception_ptr error;
};

// Ids of each, without those of a template. Throws ItemError for the first text that fails. `workers`: threads at most.
std::vector<std::vector<std::uint32_t>> encode_by_cpu(ContextPool& contexts, const std::vector<CpuText>& texts, bool plain,
                                                      unsigned workers);

}  // namespace toktier::gpu
