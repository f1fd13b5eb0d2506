// The search, token by token and then rule by rule; what neither shows is proved or left open.
#include "coverage/vocabulary_search.h"

#include <algorithm>

namespace toktier::coverage {

namespace {

// Texts tried for tokens, and four times as many for rules: a few seconds for the largest vocabulary, were they all used up.
constexpr std::uint64_t kFewestTries = 20'000, kTriesOfToken = 50, kMostTries = 1'000'000;
constexpr std::size_t kCompletions = 4096;  // of one token's ends: all of a lead byte of three

std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (text.substr(i, what.size()) == what) {
      out += by;
      i += what.size();
    } else {
      out += text[i++];
    }
  }
  return out;
}

Outcome outcome_of(Obstacle obstacle) {
  switch (obstacle) {
    case Obstacle::invalid_utf8: return Outcome::invalid_utf8;
    case Obstacle::normalizer: return Outcome::normalizer;
    case Obstacle::added_token: return Outcome::added_token;
    case Obstacle::pre_tokenizer: return Outcome::pre_tokenizer;
    case Obstacle::none: break;
  }
  return Outcome::open;
}

}  // namespace

std::vector<Rule> rules_of(const Program& program) {
  std::vector<Rule> rules;
  tt_each_rule(program.pairs, [&](std::uint32_t left, std::uint32_t right, std::uint32_t order) {
    const std::uint32_t rank = program.rank_of(order);
    if (rank >= rules.size()) rules.resize(std::size_t(rank) + 1);
    rules[rank] = {left, right, tt_product(program.pairs, order)};
  });
  return rules;
}

std::vector<std::string> completions(std::string_view bytes, const Parts& parts, std::size_t most) {
  if (parts.whole()) return {std::string(bytes)};
  const auto spread = [](std::vector<std::string>& all, std::size_t limit) {
    if (all.size() <= limit) return;
    for (std::size_t k = 0; k < limit; ++k) all[k] = all[k * all.size() / limit];
    all.resize(limit);
  };
  std::vector<std::string> befores, behinds;
  const auto add = [](std::vector<std::string>& all, std::uint32_t cp, std::size_t begin, std::size_t dropped) {
    std::string text;
    append_utf8(cp, text);
    all.push_back(text.substr(begin, text.size() - begin - dropped));
    return true;
  };
  if (!parts.head.empty())
    for_each_ending(parts.head, [&](std::uint32_t cp) { return add(befores, cp, 0, parts.head.size()); });
  if (!parts.tail.empty())
    for_each_beginning(parts.tail, [&](std::uint32_t cp) { return add(behinds, cp, parts.tail.size(), 0); });
  const bool both = !befores.empty() && !behinds.empty();
  spread(befores, both ? most / 32 + 1 : most);
  spread(behinds, both ? 32 : most);
  if (befores.empty()) befores = {""};
  if (behinds.empty()) behinds = {""};
  std::vector<std::string> out;
  for (const std::string& before : befores)
    for (const std::string& behind : behinds) out.push_back(before + std::string(bytes) + behind);
  return out;
}

VocabularySearch::VocabularySearch(const Program& program, Tracer& tracer)
    : program_(program),
      tracer_(tracer),
      possibility_(program),
      adjacency_(program, tracer, possibility_),
      rules_(rules_of(program)),
      rule_of_(program.n_ids, TT_NONE),
      tries_(std::min(kMostTries, kFewestTries + kTriesOfToken * program.n_ids)),
      tries_left_(tries_) {
  for (std::uint32_t rank = 0; rank < rules_.size(); ++rank)
    if (rules_[rank].product != TT_NONE) rule_of_[rules_[rank].product] = rank;
  find_unknown();
  find_tainted();
  before_ = possibility_.befores();
  behind_ = possibility_.behinds();
  for (std::vector<std::string>* list : {&before_, &behind_}) {
    list->erase(list->begin());  // the empty one
    std::vector<std::string> singles;
    for (const std::uint32_t cp : possibility_.representatives()) append_utf8(cp, singles.emplace_back());
    if (!unknown_.empty()) singles.push_back(unknown_);
    list->insert(list->begin(), singles.begin(), singles.end());
    std::vector<std::string> unique;
    for (std::string& text : *list)
      if (std::find(unique.begin(), unique.end(), text) == unique.end()) unique.push_back(std::move(text));
    *list = std::move(unique);
  }
}

void VocabularySearch::find_unknown() {
  if (program_.byte_symbol != nullptr) return;
  for (std::uint32_t cp = 0x3400; cp < 0x110000 && unknown_.empty(); ++cp) {
    std::string text;
    if (!is_scalar(cp) || tt_trie(program_.char_symbol, cp) != TT_NONE) continue;
    append_utf8(cp, text);
    if (possibility_.is_left(text)) unknown_ = text;
  }
}

void VocabularySearch::find_tainted() {
  tainted_.assign(program_.n_ids, 0);
  if (program_.byte_symbol != nullptr) return;
  for (std::uint64_t b = 0; b < program_.fallback.size; ++b)
    if (program_.fallback[b] != TT_NONE) tainted_[program_.fallback[b]] = 1;
  if (program_.conf[TT_CONF_UNK_ID] != TT_NONE) tainted_[program_.conf[TT_CONF_UNK_ID]] = 1;
  for (bool grown = true; grown;) {
    grown = false;
    for (const Rule& rule : rules_)
      if (rule.product != TT_NONE && (tainted_[rule.left] != 0 || tainted_[rule.right] != 0) && tainted_[rule.product] == 0)
        tainted_[rule.product] = 1, grown = true;
  }
}

// Texts that may become `bytes`: as they are, and with the normalizer's replacements and prefix undone.
std::vector<std::string> VocabularySearch::spellings(std::string_view bytes) const {
  std::vector<std::string> out{std::string(bytes)};
  std::string undone(bytes);
  for (auto step = program_.normalizer.rbegin(); step != program_.normalizer.rend(); ++step) {
    if (step->kind == TT_NORMALIZER_REPLACE && !step->b.empty()) {
      undone = replaced(undone, step->b, step->a);
      if (undone != out.back()) out.push_back(undone);
    } else if (step->kind == TT_NORMALIZER_PREPEND && undone.substr(0, step->a.size()) == step->a) {
      undone = undone.substr(step->a.size());
      if (!undone.empty()) out.push_back(undone);
    }
  }
  if (program_.flag(TT_FLAG_ADD_PREFIX_SPACE) && undone.size() > 1 && undone[0] == ' ') out.push_back(undone.substr(1));
  std::reverse(out.begin() + 1, out.end());
  return out;
}

void VocabularySearch::keep(const std::string& text) {
  for (const std::uint32_t id : ids_) out_.tokens[id] = Outcome::shown;
  tracer_.trace(text, {}, trace_);
  for (const std::uint32_t rank : trace_.fired) out_.rules[rank] = Outcome::shown;
  out_.texts.push_back(text);
}

bool VocabularySearch::attempt(const std::string& text, Goal goal) {
  if (tries_left_ == 0) return false;
  --tries_left_;
  if (goal.rank != TT_NONE) {
    tracer_.trace(text, {}, trace_);
    if (std::find(trace_.fired.begin(), trace_.fired.end(), goal.rank) == trace_.fired.end()) return false;
  }
  if (!tracer_.encode(text, ids_)) return false;
  if (goal.id != TT_NONE && std::find(ids_.begin(), ids_.end(), goal.id) == ids_.end()) return false;
  keep(text);
  return true;
}

Coverage VocabularySearch::run() {
  out_ = {};
  out_.tokens.assign(program_.n_ids, Outcome::absent);
  out_.rules.assign(rules_.size(), Outcome::absent);
  for (std::uint32_t id = 0; id < program_.n_ids; ++id)
    if ((program_.token_flags[id] & TT_TOKEN_EXISTS) != 0) out_.tokens[id] = Outcome::open;
  for (std::uint32_t rank = 0; rank < rules_.size(); ++rank)
    if (rules_[rank].product != TT_NONE) out_.rules[rank] = Outcome::open;
  own_texts();
  tries_left_ = tries_;
  remaining_tokens();
  tries_left_ = 4 * tries_;
  remaining_rules();
  return std::move(out_);
}

void VocabularySearch::own_texts() {
  tries_left_ = ~std::uint64_t{0};
  for (std::uint32_t id = 0; id < program_.n_ids; ++id) {
    if (out_.tokens[id] == Outcome::absent) continue;
    const bool added = (program_.token_flags[id] & TT_TOKEN_ADDED) != 0;
    const std::string_view text = added ? program_.token_text(id) : program_.raw_text(id);
    if (text.empty() || validate_utf8(text) != std::string_view::npos) continue;
    for (const std::string& spelling : spellings(text))
      if (attempt(spelling, {id, TT_NONE})) break;
  }
}

void VocabularySearch::remaining_tokens() {
  for (std::uint32_t id = 0; id < program_.n_ids; ++id) {
    if (out_.tokens[id] != Outcome::open) continue;
    const std::uint8_t flags = program_.token_flags[id];
    if (tainted_[id] != 0) {
      symbol_token(id);
      continue;
    }
    const std::string_view raw = program_.raw_text(id);
    if ((flags & TT_TOKEN_ADDED) != 0) {
      const auto visit = [&](const std::string& text) { return attempt(text, {id, TT_NONE}); };
      if (for_each_text(program_.token_text(id), 1, Contexts::both_sides, visit)) continue;
      if ((flags & TT_TOKEN_MODEL) == 0) continue;
    }
    if (raw.empty()) {
      if ((flags & TT_TOKEN_ADDED) == 0) out_.tokens[id] = Outcome::merges;
      continue;
    }
    const Outcome outcome = settle({id, TT_NONE}, raw, true);
    if ((flags & TT_TOKEN_ADDED) == 0 || outcome == Outcome::shown) out_.tokens[id] = outcome;
  }
}

Outcome VocabularySearch::settle(Goal goal, std::string_view raw, bool thorough) {
  const std::uint32_t token = goal.id != TT_NONE ? goal.id : rules_[goal.rank].product;
  const Place place = possibility_.judge(raw);
  if (place.obstacle != Obstacle::none) return outcome_of(place.obstacle);
  const bool whole_pieces = program_.flag(TT_FLAG_IGNORE_MERGES);
  if (goal.id != TT_NONE && (program_.token_flags[token] & TT_TOKEN_REACHABLE) == 0 && !(whole_pieces && place.exact))
    return Outcome::merges;
  if (goal.rank != TT_NONE && whole_pieces && !place.inner) return Outcome::whole_piece;
  const Contexts contexts = thorough ? Contexts::both_sides : Contexts::one_side;
  bool shown = false;
  const auto visit = [&](const std::string& text) { return (shown = attempt(text, goal)) || tries_left_ == 0; };
  if (tries_left_ > 0) for_each_text(raw, thorough ? kCompletions : 32, contexts, visit);
  if (shown) return Outcome::shown;
  if (!thorough || tries_left_ == 0) return Outcome::open;
  Outcome proof = Outcome::open;
  if (hunt(goal, token, place, proof)) return Outcome::shown;
  return proof;
}

// Neighbours that merging leaves in place: where one is needed and there is none, that is a proof; else they are texts to try.
bool VocabularySearch::hunt(Goal goal, std::uint32_t token, const Place& place, Outcome& proof) {
  const bool passing = goal.id == TT_NONE;
  constexpr std::size_t most = 96;
  const auto found_behind = adjacency_.neighbours(token, true, passing, most);
  const auto found_before = adjacency_.neighbours(token, false, passing, most);
  if (!found_behind || !found_before) return false;
  const std::vector<std::uint32_t>&behind = *found_behind, &before = *found_before;
  // Standing alone is ruled out in each of these, so that only merging beside a neighbour could show it.
  const bool alone = place.exact && !(passing && program_.flag(TT_FLAG_IGNORE_MERGES));
  if ((!place.ends && behind.empty()) || (!place.begins && before.empty()) || (!alone && behind.empty() && before.empty())) {
    proof = Outcome::neighbours;
    return false;
  }
  const std::string own(program_.raw_text(token));
  bool shown = false;
  const auto visit = [&](const std::string& text) { return (shown = attempt(text, goal)) || tries_left_ == 0; };
  const auto around = [&](std::string_view left, std::string_view right) {
    return for_each_text(std::string(left) + own + std::string(right), 256, Contexts::none, visit);
  };
  for (const std::uint32_t s : behind)
    if (around("", program_.raw_text(s))) return shown;
  for (const std::uint32_t s : before)
    if (around(program_.raw_text(s), "")) return shown;
  for (std::size_t i = 0; i < std::min<std::size_t>(before.size(), 12); ++i)
    for (std::size_t k = 0; k < std::min<std::size_t>(behind.size(), 12); ++k)
      if (around(program_.raw_text(before[i]), program_.raw_text(behind[k]))) return shown;
  for (const std::uint32_t s : behind)
    if (for_each_text(own + std::string(program_.raw_text(s)), 4, Contexts::both_sides, visit)) return shown;
  return false;
}

// A byte-fallback or the unknown symbol: some character without symbol shows it, or there is none.
void VocabularySearch::symbol_token(std::uint32_t id) {
  const auto visit = [&](const std::string& text) { return attempt(text, {id, TT_NONE}); };
  bool possible = false;
  std::size_t tried = 0;
  for (std::uint32_t cp = 0; cp < 0x110000 && tried < 64; ++cp) {
    if (!is_scalar(cp) || tt_trie(program_.char_symbol, cp) != TT_NONE) continue;
    std::string text;
    append_utf8(cp, text);
    const bool falls_back = program_.fallback.size != 0 && std::all_of(text.begin(), text.end(), [&](char c) {
      return program_.fallback[static_cast<std::uint8_t>(c)] != TT_NONE;
    });
    const bool shows = falls_back ? std::any_of(text.begin(), text.end(), [&](char c) {
      return program_.fallback[static_cast<std::uint8_t>(c)] == id;
    }) : program_.conf[TT_CONF_UNK_ID] == id;
    if (!shows || !possibility_.is_left(text)) continue;
    possible = true;
    ++tried;
    if (for_each_text(text, 1, tried == 1 ? Contexts::both_sides : Contexts::none, visit)) return;
  }
  const bool made = rule_of_[id] != TT_NONE || program_.flag(TT_FLAG_IGNORE_MERGES);
  if (!possible && !made && (program_.token_flags[id] & TT_TOKEN_ADDED) == 0) out_.tokens[id] = Outcome::has_symbol;
}

// Most rules need a few tries; where whole pieces are taken first, thousands of rules need a larger piece around them. The few
// hard ones come afterwards, so that they cannot use up the tries of all.
void VocabularySearch::remaining_rules() {
  for (const bool thorough : {false, true})
    for (std::uint32_t rank = 0; rank < rules_.size(); ++rank) {
      const std::uint32_t product = rules_[rank].product;
      if (out_.rules[rank] != Outcome::open || tainted_[product] != 0) continue;
      out_.rules[rank] = settle({TT_NONE, rank}, program_.raw_text(product), thorough);
    }
}

}  // namespace toktier::coverage
