// Which tokens can stand beside a token in one piece, by merging alone. Of byte-level models whose every byte has a symbol: there
// tokens s, t are neighbours after all merges of some text exactly when the bytes of s and t, merged alone, give [s, t] (no merge
// crosses from one to the other before the end, and the merges inside of both are those of the two alone). The same holds at the
// moment when a rule fires: its product p stands beside a symbol s, and the bytes of p and s alone pass through [p, s].
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coverage/possibility.h"
#include "coverage/trace.h"

namespace toktier::coverage {

class Adjacency {
 public:
  // `tokens`: ids that merges can make.
  Adjacency(const Program& program, Tracer& tracer, Possibility& possibility);

  // Ids s such that [t, s] (`behind`) or [s, t] can stand, and its bytes inside one piece. `passing`: at the moment when the rule
  // that makes t fires, not at the end. Stops after `most`; nothing when the bound on all work is reached before the end.
  std::optional<std::vector<std::uint32_t>> neighbours(std::uint32_t t, bool behind, bool passing, std::size_t most);
  // False where no proof can be had: another kind of model.
  bool applies() const { return applies_; }

 private:
  bool stands(std::uint32_t t, std::uint32_t s, bool behind, bool passing);

  const Program& program_;
  Tracer& tracer_;
  Possibility& possibility_;
  bool applies_;
  std::vector<std::uint32_t> by_first_[256], by_last_[256];
  std::vector<std::uint32_t> symbols_;
  std::uint64_t pairs_left_ = 6'000'000, places_left_ = 40'000;  // bounds on all calls together: a few seconds
};

}  // namespace toktier::coverage
