// Greedy merging of one token's own text: the proof step of merge_proof.h.
#include "compile/merge_proof.h"

#include <functional>

#include "compile/probing.h"
#include "shared/hash.h"

namespace toktier::compile {

namespace {
constexpr std::uint32_t kShort = 64;
constexpr std::uint64_t kHashBits = 0xFFFFFFFF00000000ull;
}  // namespace

RuleTable::RuleTable(const std::vector<std::uint32_t>& merges, std::uint32_t& duplicate) : merges_(merges.data()) {
  const std::size_t count = merges.size() / 3;
  std::uint64_t capacity = 16;
  while (capacity < 2 * count) capacity *= 2;
  slots_.assign(capacity, 0);
  mask_ = capacity - 1;
  duplicate = kNoRule;
  for (std::size_t r = 0; r < count; ++r) {
    const std::uint64_t hash = tt_hash_pair(merges_[3 * r], merges_[3 * r + 1]);
    Probe probe(hash, mask_);
    for (; slots_[probe.at()] != 0; probe.next()) {
      const std::uint64_t slot = slots_[probe.at()];
      if (((slot ^ hash) & kHashBits) != 0) continue;
      const std::size_t other = 3 * ((slot & ~kHashBits) - 1);
      if (merges_[other] == merges_[3 * r] && merges_[other + 1] == merges_[3 * r + 1]) duplicate = std::uint32_t(r);
    }
    slots_[probe.at()] = (hash & kHashBits) | (r + 1);
  }
}

std::uint32_t RuleTable::find(std::uint32_t left, std::uint32_t right) const {
  const std::uint64_t hash = tt_hash_pair(left, right);
  for (std::uint64_t i = hash & mask_;; i = (i + 1) & mask_) {
    const std::uint64_t slot = slots_[i];
    if (slot == 0) return kNoRule;
    if (((slot ^ hash) & kHashBits) != 0) continue;
    const std::uint32_t rule = std::uint32_t(slot) - 1;
    if (merges_[3 * std::size_t(rule)] == left && merges_[3 * std::size_t(rule) + 1] == right) return rule;
  }
}

MergeOutcome MergeProver::run(std::vector<std::uint32_t>& symbols) {
  return symbols.size() <= kShort ? run_short(symbols.data(), std::uint32_t(symbols.size())) : run_long(symbols);
}

MergeOutcome MergeProver::run_short(std::uint32_t* symbols, std::uint32_t n) {
  std::uint32_t rules[kShort];  // rules[i]: of symbols i and i + 1; the index of a rule is its rank
  for (std::uint32_t i = 0; i + 1 < n; ++i) rules[i] = rules_.find(symbols[i], symbols[i + 1]);
  std::uint32_t last = kNoRule;
  while (n > 1) {
    std::uint32_t at = 0;
    for (std::uint32_t i = 1; i + 1 < n; ++i)
      if (rules[i] < rules[at]) at = i;
    if (rules[at] == kNoRule) break;
    last = rules[at];
    symbols[at] = rules_.product(last);
    for (std::uint32_t i = at + 1; i + 1 < n; ++i) symbols[i] = symbols[i + 1];
    for (std::uint32_t i = at + 1; i + 2 < n; ++i) rules[i] = rules[i + 1];
    --n;
    if (at + 1 < n) rules[at] = rules_.find(symbols[at], symbols[at + 1]);
    if (at > 0) rules[at - 1] = rules_.find(symbols[at - 1], symbols[at]);
  }
  return {n == 1, n == 1 ? symbols[0] : kNoRule, last};
}

MergeOutcome MergeProver::run_long(std::vector<std::uint32_t>& symbols) {
  constexpr std::uint32_t kEnd = 0xFFFFFFFFu;
  const std::uint32_t n = std::uint32_t(symbols.size());
  rule_at_.assign(n, kNoRule);
  next_.resize(n);
  previous_.resize(n);
  using Entry = std::pair<std::uint32_t, std::uint32_t>;  // rule, position of its left symbol
  std::vector<Entry> entries;
  entries.reserve(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    next_[i] = i + 1 < n ? i + 1 : kEnd;
    previous_[i] = i > 0 ? i - 1 : kEnd;
    if (i + 1 < n && (rule_at_[i] = rules_.find(symbols[i], symbols[i + 1])) != kNoRule) entries.emplace_back(rule_at_[i], i);
  }
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap(std::greater<>(), std::move(entries));
  std::uint32_t last = kNoRule, left = n;
  const auto renew = [&](std::uint32_t i) {
    rule_at_[i] = next_[i] == kEnd ? kNoRule : rules_.find(symbols[i], symbols[next_[i]]);
    if (rule_at_[i] != kNoRule) heap.emplace(rule_at_[i], i);
  };
  while (!heap.empty()) {
    const auto [rule, at] = heap.top();
    heap.pop();
    if (rule_at_[at] != rule) continue;  // the pair here has changed or gone
    last = rule;
    const std::uint32_t gone = next_[at];
    symbols[at] = rules_.product(rule);
    rule_at_[gone] = kNoRule;
    next_[at] = next_[gone];
    if (next_[gone] != kEnd) previous_[next_[gone]] = at;
    --left;
    renew(at);
    if (previous_[at] != kEnd) renew(previous_[at]);
  }
  return {left == 1, left == 1 ? symbols[0] : kNoRule, last};
}

}  // namespace toktier::compile
