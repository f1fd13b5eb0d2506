// Encodes one token's own text with all merge rules, to prove which rules can fire and which tokens merges can make.
//
// Theorem. Where the symbols that spell a token come from characters alone, rule (a, b) fires in some text exactly when it is the
// last merge of the text a·b encoded alone. Merges go by lowest rank, then leftmost. Where (a, b) fires in a text, no merge has
// crossed the span of a·b before; the merges inside the span were each the least of the whole text, hence the least inside the
// span, so that the span alone goes through the same steps. Conversely a·b alone is a text. Ranks need not be monotone.
// Hence at most one live rule a token, and deleting the others changes no encoding.
//
// Not covered by it: symbols that stand for other text than their own string (byte fallback, unknown). Whoever calls keeps every
// rule that such a symbol can reach (bpe_tables.cpp).
#pragma once
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

namespace toktier::compile {

constexpr std::uint32_t kNoRule = 0xFFFFFFFFu;

// Rule index by pair of symbols. Eight bytes a slot: the proofs make millions of look-ups, most of them in vain, and most of
// those end at the hash bits without touching the rule's row.
class RuleTable {
 public:
  // `merges`: rows left, right, product; must outlive the table. Returns through `duplicate` the index of a pair listed twice, or
  // kNoRule.
  RuleTable(const std::vector<std::uint32_t>& merges, std::uint32_t& duplicate);
  std::uint32_t find(std::uint32_t left, std::uint32_t right) const;
  std::uint32_t product(std::uint32_t rule) const { return merges_[3 * std::size_t(rule) + 2]; }

 private:
  const std::uint32_t* merges_;
  std::vector<std::uint64_t> slots_;  // hash bits above, rule + 1 below; 0: empty
  std::uint64_t mask_;
};

// What a text of initial symbols becomes.
struct MergeOutcome {
  bool single;              // one symbol is left
  std::uint32_t symbol;     // the only one, if single
  std::uint32_t last_rule;  // the last merge, or kNoRule
};

class MergeProver {
 public:
  explicit MergeProver(const RuleTable& rules) : rules_(rules) {}
  // Consumes `symbols`. n log n for long texts, n² up to 64 symbols, where that is faster.
  MergeOutcome run(std::vector<std::uint32_t>& symbols);

 private:
  MergeOutcome run_short(std::uint32_t* symbols, std::uint32_t n);
  MergeOutcome run_long(std::vector<std::uint32_t>& symbols);

  const RuleTable& rules_;
  std::vector<std::uint32_t> rule_at_, next_, previous_;
};

}  // namespace toktier::compile
