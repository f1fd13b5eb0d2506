// Where the arrays of a chunk lie in the memory of a lane. What is copied or zeroed in one go lies in one stretch: the text and
// where documents begin; what must be zero, whose head comes back; rows and ids.
#pragma once
#include <cstddef>
#include <cstdint>

#include "device/abi.h"

namespace toktier::gpu {

struct PlacedBuffers {
  TtGpuBuffers buffers;
  // Bytes from the base.
  std::size_t doc_begin;               // in the input, which begins at the base with the text
  std::size_t input_bytes;
  std::size_t zero_begin, zero_bytes;  // control and doc_flags first
  std::size_t flags_bytes;             // of these two
  std::size_t row_begin, row_bytes;    // the ids follow
  std::size_t total_bytes;             // never less for more text or more documents
};

// For `n` bytes of text in `n_docs` documents, without offsets. `base` is aligned to 256.
PlacedBuffers place_buffers(std::uint64_t base, std::size_t n, std::size_t n_docs);

inline std::size_t text_words(std::size_t n) { return (n + TT_WORD_BYTES - 1) / TT_WORD_BYTES; }
inline std::size_t text_tiles(std::size_t n) { return (n + TT_TILE_BYTES - 1) / TT_TILE_BYTES; }

}  // namespace toktier::gpu
