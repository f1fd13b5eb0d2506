// Closest overlapping rules and the texts that tell them apart; mutants; documents.
#include "coverage/rank_order.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace toktier::coverage {

namespace {

constexpr std::size_t kClosest = 6;         // overlapping rules looked at for one side of one rule
constexpr std::uint32_t kTriesOfPair = 200;  // texts tried for one pair
constexpr std::size_t kJoined = 48;         // texts of one document

// Ranks of rules by the symbol on one side, ascending.
class BySymbol {
 public:
  BySymbol(const Program& program, const std::vector<Rule>& rules, bool left) : first_(std::size_t(program.n_ids) + 1, 0) {
    const auto side = [&](const Rule& rule) { return left ? rule.left : rule.right; };
    for (const Rule& rule : rules)
      if (rule.product != TT_NONE) ++first_[side(rule) + 1];
    for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    ranks_.resize(first_.back());
    std::vector<std::uint32_t> fill(first_.begin(), first_.end() - 1);
    for (std::uint32_t rank = 0; rank < rules.size(); ++rank)
      if (rules[rank].product != TT_NONE) ranks_[fill[side(rules[rank])]++] = rank;
  }
  const std::uint32_t* begin(std::uint32_t symbol) const { return ranks_.data() + first_[symbol]; }
  const std::uint32_t* end(std::uint32_t symbol) const { return ranks_.data() + first_[symbol + 1]; }

 private:
  std::vector<std::uint32_t> first_, ranks_;
};

std::string joined(const Program& program, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return std::string(program.raw_text(a)) + std::string(program.raw_text(b)) + std::string(program.raw_text(c));
}

}  // namespace

RankOrder order_texts(const Program& program, Tracer& tracer, VocabularySearch& search) {
  const std::vector<Rule> rules = rules_of(program);
  const BySymbol by_left(program, rules, true), by_right(program, rules, false);
  RankOrder out;
  std::unordered_set<std::string> seen;
  Trace plain, swapped;
  std::vector<std::uint32_t> a, b, ids;
  const auto tell = [&](std::uint32_t lower, std::uint32_t rank, const std::string& bytes) {
    const RankSwap swap{lower, rank};
    tracer.spell(bytes, a);
    b = a;
    merge(program, {}, a, nullptr, nullptr);
    merge(program, swap, b, nullptr, nullptr);
    if (a == b) return false;
    ++out.pairs;
    if (search.possibility().judge(bytes).obstacle != Obstacle::none) return ++out.blocked, false;
    std::uint32_t tries = 0;
    bool told = false;
    search.for_each_text(bytes, 64, Contexts::one_side, [&](const std::string& text) {
      if (++tries > kTriesOfPair) return true;
      if (!tracer.encode(text, ids)) return false;
      tracer.trace(text, {}, plain);
      tracer.trace(text, swap, swapped);
      if (plain.symbols == swapped.symbols) return false;
      if (seen.insert(text).second) out.texts.push_back(text);
      return told = true;
    });
    out.told += told;
    return told;
  };
  for (std::uint32_t rank = 0; rank < rules.size(); ++rank) {
    const Rule& rule = rules[rank];
    if (rule.product == TT_NONE) continue;
    const auto side = [&](const BySymbol& index, std::uint32_t symbol, auto&& bytes) {
      const std::uint32_t* at = std::lower_bound(index.begin(symbol), index.end(symbol), rank);
      for (std::size_t k = 0; k < kClosest && at != index.begin(symbol); ++k) {
        --at;
        if (tell(*at, rank, bytes(rules[*at]))) return;
      }
    };
    side(by_right, rule.left, [&](const Rule& other) { return joined(program, other.left, rule.left, rule.right); });
    side(by_left, rule.right, [&](const Rule& other) { return joined(program, rule.left, rule.right, other.right); });
  }
  return out;
}

Mutants rank_mutants(const Program& program, Tracer& tracer, VocabularySearch& search, const std::vector<std::string>& texts,
                     std::uint64_t seed, std::uint32_t count) {
  const std::vector<Rule> rules = rules_of(program);
  Mutants out;
  if (rules.empty()) return out;
  const BySymbol by_left(program, rules, true), by_right(program, rules, false);
  std::uint64_t state = seed;
  const auto draw = [&](std::uint64_t below) {
    state += 0x9E3779B97F4A7C15ull;
    return tt_hash_mix(state * TT_HASH_A) % below;
  };
  struct Mutant {
    RankSwap swap;
    std::string bytes;  // w·x·y
  };
  std::vector<Mutant> mutants;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> where;  // by rank: texts in which it is a candidate
  for (std::uint32_t attempt = 0; attempt < 16 * count && mutants.size() < count; ++attempt) {
    const auto rank = static_cast<std::uint32_t>(draw(rules.size()));
    if (rules[rank].product == TT_NONE) continue;
    const bool before = draw(2) == 0;
    const BySymbol& index = before ? by_right : by_left;
    const std::uint32_t symbol = before ? rules[rank].left : rules[rank].right;
    const auto size = static_cast<std::uint64_t>(index.end(symbol) - index.begin(symbol));
    if (size == 0) continue;
    const std::uint32_t other = index.begin(symbol)[draw(size)];
    if (other == rank) continue;
    const Rule& first = rules[before ? other : rank];
    mutants.push_back({{rank, other}, joined(program, first.left, first.right, rules[before ? rank : other].right)});
    where[rank];
    where[other];
  }
  Trace plain, swapped;
  for (std::uint32_t i = 0; i < texts.size(); ++i) {
    tracer.trace(texts[i], {}, plain);
    for (const std::uint32_t rank : plain.candidates) {
      const auto entry = where.find(rank);
      if (entry != where.end() && (entry->second.empty() || entry->second.back() != i)) entry->second.push_back(i);
    }
  }
  std::vector<std::uint32_t> a, b;
  for (const auto& [swap, bytes] : mutants) {
    ++out.tested;
    const auto kills = [&](std::uint32_t i) {
      tracer.trace(texts[i], {}, plain);
      tracer.trace(texts[i], swap, swapped);
      return plain.symbols != swapped.symbols;
    };
    const auto& first = where[swap.first];
    const auto& second = where[swap.second];
    if (std::any_of(first.begin(), first.end(), kills) || std::any_of(second.begin(), second.end(), kills)) {
      ++out.killed;
      continue;
    }
    tracer.spell(bytes, a);
    b = a;
    merge(program, {}, a, nullptr, nullptr);
    merge(program, swap, b, nullptr, nullptr);
    out.apart += a == b || search.possibility().judge(bytes).obstacle != Obstacle::none;
  }
  return out;
}

std::vector<std::string> join_texts(const Program& program, Tracer& tracer, const std::vector<std::string>& texts) {
  std::vector<std::string> documents, left = texts;
  std::vector<std::uint32_t> ids, whole;
  Trace of_document, of_text;
  std::unordered_set<std::uint32_t> fired;
  for (const char* const separator : {" ", "\n", "!", "0"}) {
    std::vector<std::string> apart;
    for (std::size_t begin = 0; begin < left.size(); begin += kJoined) {
      const std::size_t end = std::min(begin + kJoined, left.size());
      std::string document;
      for (std::size_t i = begin; i < end; ++i) document += (i > begin ? separator : "") + left[i];
      if (!tracer.encode(document, whole)) whole.clear();
      tracer.trace(document, {}, of_document);
      fired = {of_document.fired.begin(), of_document.fired.end()};
      std::size_t visible = 0;
      auto from = whole.begin();
      for (std::size_t i = begin; i < end; ++i) {
        tracer.encode(left[i], ids);
        const auto at = std::search(from, whole.end(), ids.begin(), ids.end());
        tracer.trace(left[i], {}, of_text);
        const bool fires = std::all_of(of_text.fired.begin(), of_text.fired.end(), [&](auto r) { return fired.count(r) != 0; });
        if ((at == whole.end() && !ids.empty()) || !fires) {
          apart.push_back(left[i]);
          continue;
        }
        ++visible;
        from = at + std::ptrdiff_t(ids.size());
      }
      if (visible > 0) documents.push_back(std::move(document));
    }
    left = std::move(apart);
  }
  documents.insert(documents.end(), left.begin(), left.end());
  return documents;
}

}  // namespace toktier::coverage
