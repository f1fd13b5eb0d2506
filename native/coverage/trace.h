// What a text makes the engine do: its ids, by the engine; and which merge rules fire, found by merging its pieces again over
// the program's pair table. Splitting, normalizing and added tokens are the engine's own; the reference judges all of it later.
// Not here: which texts to try (vocabulary_search.h), what can be proved without a text (possibility.h).
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/normalizer.h"
#include "engine/program.h"
#include "engine/splitter.h"

namespace toktier::coverage {

// Two ranks that are exchanged: a mutant of the program. Both TT_NONE: the program itself.
struct RankSwap {
  std::uint32_t first = TT_NONE, second = TT_NONE;
  std::uint32_t operator()(std::uint32_t rank) const { return rank == first ? second : rank == second ? first : rank; }
};

// Rank and product of two symbols side by side, under a swap.
TtMerge find_merge(const Program& program, RankSwap swap, std::uint32_t left, std::uint32_t right);

struct Trace {
  std::vector<std::uint32_t> symbols;     // what is left of all pieces, added tokens included: the ids of the text
  std::vector<std::uint32_t> fired;       // ranks of the rules that fired, in order
  std::vector<std::uint32_t> candidates;  // ranks of the rules whose sides ever stood side by side, repeated
};

// Merges `symbols` in place, lowest rank first, then leftmost. Quadratic: pieces here are short. Null: not wanted.
void merge(const Program& program, RankSwap swap, std::vector<std::uint32_t>& symbols, std::vector<std::uint32_t>* fired,
           std::vector<std::uint32_t>* candidates);

class Tracer {
 public:
  Tracer(const Program& program, Context& context) : program_(program), context_(context) {}

  // Ids of `text`, without padding. False where the engine refuses it or the stored truncation cuts it: it shows nothing then.
  bool encode(std::string_view text, std::vector<std::uint32_t>& ids);
  // `text` as encode() took it. Fired rules and candidates are of the program as `swap` leaves it.
  void trace(std::string_view text, RankSwap swap, Trace& out);
  // Initial symbols of a piece of the model.
  void spell(std::string_view piece, std::vector<std::uint32_t>& out) const;
  // True where the piece is taken whole before any rule may fire.
  bool is_taken_whole(std::string_view piece) const;

 private:
  void normalized(const Segment& segment, RankSwap swap, Trace& out);
  void piece(std::string_view piece, RankSwap swap, Trace& out);

  const Program& program_;
  Context& context_;
  Result result_;
  NormalizerRun normalizer_;
  Scratch<std::uint8_t> right_states_, prefixed_;
  std::vector<std::uint32_t> symbols_;
  BoundaryLot lot_;
};

}  // namespace toktier::coverage
