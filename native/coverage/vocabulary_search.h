// For each token and each live merge rule: a text that shows it, or a proof that none can, or neither (open). A text shows a
// token when the whole pipeline gives its id, and a rule when merging fires it; the search is over the token's own text, contexts
// that reach every state of the boundary automaton, completions of characters, and neighbours that merging leaves in place.
// Deterministic: bounded by counts of tries, never by time. Not here: the order of rules (rank_order.h).
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "coverage/adjacency.h"
#include "coverage/possibility.h"
#include "coverage/trace.h"

namespace toktier::coverage {

// What became of a token or a rule. Mirrored in toktier/certify/vocabulary_outcomes.py.
enum class Outcome : std::uint8_t {
  absent = 0,         // no such id
  shown = 1,          // a text of the suite produces the token, fires the rule
  open = 2,           // no text found, no proof
  invalid_utf8 = 3,   // from here on proofs: see possibility.h for the first four
  normalizer = 4,
  added_token = 5,
  pre_tokenizer = 6,
  merges = 7,         // merging its own text does not give the token, and no piece is exactly that text
  neighbours = 8,     // it cannot stand alone in a piece, and beside every other token it merges away
  has_symbol = 9,     // the byte or unknown symbol of characters, all of which have a symbol of their own
  whole_piece = 10    // rules: every piece that holds the product is the product, and taken whole
};

struct Coverage {
  std::vector<std::string> texts;
  std::vector<Outcome> tokens;  // by id
  std::vector<Outcome> rules;   // by rank
};

struct Rule {
  std::uint32_t left = TT_NONE, right = TT_NONE, product = TT_NONE;
};
// Live rules by rank.
std::vector<Rule> rules_of(const Program& program);

// What is put around a text: nothing, something on one side, or also on both.
enum class Contexts { none, one_side, both_sides };

class VocabularySearch {
 public:
  VocabularySearch(const Program& program, Tracer& tracer);
  Coverage run();

  // For rank_order: texts whose normalized form may hold `bytes` in one piece, to visit(text) until it returns true.
  template <typename Visit>
  bool for_each_text(std::string_view bytes, std::size_t completions, Contexts contexts, Visit&& visit);
  Possibility& possibility() { return possibility_; }

 private:
  struct Goal {
    std::uint32_t id = TT_NONE, rank = TT_NONE;
  };
  bool attempt(const std::string& text, Goal goal);
  void keep(const std::string& text);
  void own_texts();
  void remaining_tokens();
  void remaining_rules();
  void symbol_token(std::uint32_t id);
  Outcome settle(Goal goal, std::string_view raw, bool thorough);
  bool hunt(Goal goal, std::uint32_t token, const Place& place, Outcome& proof);
  void find_unknown();
  void find_tainted();
  std::vector<std::string> spellings(std::string_view bytes) const;

  const Program& program_;
  Tracer& tracer_;
  Possibility possibility_;
  Adjacency adjacency_;
  std::vector<Rule> rules_;
  std::vector<std::uint32_t> rule_of_;     // by product: one rank, or none
  std::vector<std::uint8_t> tainted_;      // by id: stands for other text than its own
  std::string unknown_;                    // a character without symbol, of code point models
  std::vector<std::string> before_, behind_;
  std::uint64_t tries_, tries_left_;
  Coverage out_;
  Trace trace_;
  std::vector<std::uint32_t> ids_;
};

// At most `most` of the texts that complete the characters at both ends, spread evenly; the bytes alone where nothing is missing.
std::vector<std::string> completions(std::string_view bytes, const Parts& parts, std::size_t most);

template <typename Visit>
bool VocabularySearch::for_each_text(std::string_view bytes, std::size_t most, Contexts contexts, Visit&& visit) {
  const auto parts = parts_of(bytes);
  if (!parts) return false;
  std::vector<std::string> bases;
  for (const std::string& completed : completions(bytes, *parts, most))
    for (std::string& spelling : spellings(completed)) bases.push_back(std::move(spelling));
  for (const std::string& base : bases)
    if (visit(base)) return true;
  if (contexts == Contexts::none) return false;
  if (!parts->whole()) {  // of many completions those that a piece can hold
    std::vector<std::string> held;
    for (const std::string& base : bases)
      if (possibility_.judge(base).obstacle == Obstacle::none) held.push_back(base);
    if (!held.empty()) bases = std::move(held);
  }
  const std::size_t few = std::min<std::size_t>(bases.size(), 24);
  const auto around = [&](const std::string& before, const std::string& behind) {
    for (std::size_t k = 0; k < few; ++k)
      if (visit(before + bases[k * bases.size() / few] + behind)) return true;
    return false;
  };
  for (const std::string& behind : behind_)
    if (around("", behind)) return true;
  for (const std::string& before : before_)
    if (around(before, "")) return true;
  if (contexts != Contexts::both_sides || bases.size() > 16) return false;
  for (const std::string& before : before_)
    for (const std::string& behind : behind_)
      if (around(before, behind)) return true;
  for (const std::string& first : behind_)
    for (const std::string& second : behind_)
      if (around("", first + second)) return true;
  return false;
}

}  // namespace toktier::coverage
