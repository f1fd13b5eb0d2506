// Ids of a stretch of text that ends where the text may be cut, in blocks that end at cuts too, so that later edits find a place
// to begin near them. Long stretches are shared among threads. Not here: which stretch (session.h).
#pragma once
#include <cstdint>
#include <string_view>

#include "engine/engine.h"
#include "engine/scratch.h"
#include "session/positions.h"

namespace toktier {

// Blocks near the end of a stretch, and before: edits come near the end of a transcript. An edit encodes half a block again on
// average; a block costs a call of the engine (0.2 µs) and a mark of 24 bytes.
constexpr std::size_t block_near_end = 512, block_before = 4096, near_end = 1 << 16;

struct Span {
  Scratch<std::uint32_t> ids;
  Scratch<Position> marks;  // the ends of the blocks, the last one included; relative to the beginning of the span
};

// `continued`: text came before it. A text of `size` bytes is worth more than one thread from `worth_a_thread` on.
constexpr std::size_t worth_a_thread = 1 << 18;
void encode_span(const Program& program, ContextPool& contexts, Context& context, std::string_view text, bool continued,
                 unsigned workers, Span& out);

std::size_t count_code_points(std::string_view text);

}  // namespace toktier
