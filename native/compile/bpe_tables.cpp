// Checks the vocabulary and its merge rules, drops the rules that cannot fire, and lays out the BPE sections.
//
// Which rules are proved (merge_proof.h) and which kept. A symbol *stands for other text* when it is a byte-fallback or the
// unknown symbol, or a product that such a symbol went into; the closure over all rules is `tainted`. An occurrence of any other
// token consists of the symbols of its own characters, so the theorem decides every rule whose two sides are both untainted. A
// rule with a tainted side is kept. A token with a character that has no symbol never occurs untainted: its rules are dead.
//
// Cuts inside a piece. Inside an untainted product, two symbols side by side met first as the last and the first symbol of the
// sides of some live rule; so the junctions of the live rules are all pairs that any merge can ever join. JSYM holds them by
// symbol: it speaks of the sequence after symbols were made, where unknown characters are fused and characters without symbol
// gone. JBYT holds them by byte: a byte without symbol vanishes or becomes unknown, which may make its neighbours adjacent or
// fuse, so next to it there is never a cut. With a tainted rule there are no cuts at all.
#include "compile/bpe_tables.h"

#include <algorithm>
#include <string_view>

#include "compile/join_filter.h"
#include "compile/merge_proof.h"
#include "compile/probing.h"
#include "compile/string_tables.h"
#include "engine/engine.h"
#include "shared/hash.h"
#include "shared/layout.h"

namespace toktier::compile {

namespace {

constexpr std::uint32_t kNone = TT_NONE;
constexpr std::uint32_t kCodePoints = 0x110000;

[[noreturn]] void fail(std::string what) { throw CompileError{std::move(what)}; }
std::string number(std::uint64_t n) { return std::to_string(n); }

std::string_view at(const Blob& blob, std::size_t i) { return string_at(blob, i); }

std::uint64_t capacity_for(std::uint64_t entries) {
  std::uint64_t capacity = 2;
  while (capacity < 2 * entries) capacity *= 2;
  return capacity;
}

// Every string valid UTF-8: the whole at once, then no string may begin in the middle of a character.
void check_utf8(const Blob& blob, const char* name) {
  const std::string_view all(reinterpret_cast<const char*>(blob.bytes.data()), blob.bytes.size());
  const std::size_t bad = validate_utf8(all);
  for (std::size_t i = 0; i + 1 < blob.offsets.size(); ++i) {
    const std::uint32_t begin = blob.offsets[i], end = blob.offsets[i + 1];
    if ((begin < end && (blob.bytes[begin] & 0xC0) == 0x80) || (bad >= begin && bad < end))
      fail(std::string(name) + "[" + number(i) + "] is not valid UTF-8");
  }
}

// First code point of valid UTF-8; `length` its bytes.
std::uint32_t decode(const char* s, std::uint32_t& length) {
  const auto* p = reinterpret_cast<const unsigned char*>(s);
  if (p[0] < 0x80) return length = 1, p[0];
  if (p[0] < 0xE0) return length = 2, (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
  if (p[0] < 0xF0) return length = 3, (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
  return length = 4, (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

std::string encode(std::uint32_t cp) {
  std::string s;
  if (cp < 0x80) {
    s += char(cp);
  } else if (cp < 0x800) {
    s += {char(0xC0 | cp >> 6), char(0x80 | (cp & 0x3F))};
  } else if (cp < 0x10000) {
    s += {char(0xE0 | cp >> 12), char(0x80 | (cp >> 6 & 0x3F)), char(0x80 | (cp & 0x3F))};
  } else {
    s += {char(0xF0 | cp >> 18), char(0x80 | (cp >> 12 & 0x3F)), char(0x80 | (cp >> 6 & 0x3F)), char(0x80 | (cp & 0x3F))};
  }
  return s;
}

class Builder {
 public:
  explicit Builder(const BpeInput& input) : in_(input), n_(std::uint32_t(input.flags.size())) {}

  BpeTables build() {
    check_shape();
    check_symbols();
    std::uint32_t duplicate = kNoRule;
    const RuleTable rules(in_.merges, duplicate);
    if (duplicate != kNoRule)
      fail("merges[" + number(duplicate) + "] lists a pair that an earlier rule has; resolve duplicates first");
    check_rules();
    taint();
    prove(rules);
    keep_live();
    look_ups();
    cuts();
    return std::move(out_);
  }

 private:
  bool model(std::uint32_t id) const { return id < n_ && (in_.flags[id] & TT_TOKEN_MODEL) != 0; }

  void check_shape() {
    if (in_.raw.offsets.size() != std::size_t(n_) + 1 || in_.strings.offsets.size() != std::size_t(n_) + 1)
      fail("raw, strings and flags must have one entry for each id");
    if (in_.merges.size() % 3 != 0) fail("merges must be rows of left, right, product");
    if (in_.merges.size() / 3 >= 0x7FFFFFFFu) fail("more than 2,147,483,646 merge rules");
    for (std::uint32_t id = 0; id < n_; ++id) {
      if ((in_.flags[id] & ~15u) != 0) fail("flags[" + number(id) + "] has bits that are computed here");
      if ((in_.flags[id] & TT_TOKEN_MODEL) != 0 && (in_.flags[id] & TT_TOKEN_EXISTS) == 0)
        fail("flags[" + number(id) + "] is in the model but does not exist");
    }
    check_utf8(in_.strings, "strings");
    if (!in_.byte_level) check_utf8(in_.raw, "raw");
  }

  void check_symbols() {
    const auto must_be = [&](std::uint32_t id, std::string_view text, const std::string& what) {
      if (!model(id)) fail(what + " has symbol " + number(id) + ", which is no token of the model");
      if (at(in_.raw, id) != text) fail(what + " has symbol " + number(id) + ", whose text is another");
    };
    if (in_.byte_level) {
      if (in_.initial.size() != 256) fail("initial must have 256 entries for a byte-level model");
      symbols_ = in_.initial;
      for (std::uint32_t b = 0; b < 256; ++b) {
        const char c = char(b);
        if (symbols_[b] != kNone) must_be(symbols_[b], {&c, 1}, "byte " + number(b));
      }
    } else {
      if (in_.initial.size() % 2 != 0) fail("initial must be rows of code point, id");
      symbols_.assign(kCodePoints, kNone);
      for (std::size_t i = 0; i < in_.initial.size(); i += 2) {
        const std::uint32_t cp = in_.initial[i], id = in_.initial[i + 1];
        if (cp >= kCodePoints || (cp >= 0xD800 && cp < 0xE000)) fail("initial has " + number(cp) + ", which is no character");
        if (symbols_[cp] != kNone) fail("initial has code point " + number(cp) + " twice");
        must_be(id, encode(cp), "code point " + number(cp));
        symbols_[cp] = id;
      }
    }
    if (!in_.byte_fallback.empty() && in_.byte_fallback.size() != 256) fail("byte_fallback must have 256 entries, or none");
    for (const std::uint32_t id : in_.byte_fallback)
      if (id != kNone && !model(id)) fail("byte_fallback has symbol " + number(id) + ", which is no token of the model");
    if (in_.unk_id != kNone && !model(in_.unk_id)) fail("unk_id " + number(in_.unk_id) + " is no token of the model");
  }

  void check_rules() {
    for (std::size_t r = 0; r < in_.merges.size(); r += 3) {
      const std::uint32_t left = in_.merges[r], right = in_.merges[r + 1], product = in_.merges[r + 2];
      if (!model(left) || !model(right) || !model(product))
        fail("merges[" + number(r / 3) + "] names an id that is no token of the model");
      const auto joins = [&](const Blob& blob) {
        const std::string_view a = at(blob, left), b = at(blob, right), p = at(blob, product);
        return p.size() == a.size() + b.size() && p.substr(0, a.size()) == a && p.substr(a.size()) == b;
      };
      const bool spelled = !at(in_.raw, left).empty() && !at(in_.raw, right).empty();
      if (!joins(in_.strings) || (spelled && !joins(in_.raw)))
        fail("merges[" + number(r / 3) + "] makes token " + number(product) + ", which is not its two sides joined");
    }
  }

  // Closure of the symbols that stand for other text. A work list over the rules by side: linear in the rules.
  void taint() {
    tainted_.assign(n_, 0);
    std::vector<std::uint32_t> work;
    const auto mark = [&](std::uint32_t id) {
      if (id != kNone && tainted_[id] == 0) tainted_[id] = 1, work.push_back(id);
    };
    for (const std::uint32_t id : in_.byte_fallback) mark(id);
    mark(in_.unk_id);
    if (work.empty()) return;
    std::vector<std::uint32_t> first(std::size_t(n_) + 1, 0), entries(in_.merges.size() / 3 * 2);
    const auto sides = [&](auto&& visit) {
      for (std::size_t r = 0; r < in_.merges.size(); r += 3)
        for (int side = 0; side < 2; ++side) visit(in_.merges[r + side], in_.merges[r + 2]);
    };
    sides([&](std::uint32_t side, std::uint32_t) { ++first[side + 1]; });
    for (std::uint32_t id = 0; id < n_; ++id) first[id + 1] += first[id];
    std::vector<std::uint32_t> fill(first.begin(), first.end() - 1);
    sides([&](std::uint32_t side, std::uint32_t product) { entries[fill[side]++] = product; });
    while (!work.empty()) {
      const std::uint32_t id = work.back();
      work.pop_back();
      for (std::uint32_t k = first[id]; k < first[id + 1]; ++k) mark(entries[k]);
    }
  }

  // The symbols that spell `text`; false when a character has none.
  bool spell(std::string_view text, std::vector<std::uint32_t>& symbols) const {
    symbols.clear();
    for (std::size_t i = 0; i < text.size();) {
      std::uint32_t length = 1;
      const std::uint32_t unit = in_.byte_level ? static_cast<unsigned char>(text[i]) : decode(text.data() + i, length);
      if (symbols_[unit] == kNone) return false;
      symbols.push_back(symbols_[unit]);
      i += length;
    }
    return !symbols.empty();
  }

  void prove(const RuleTable& rules) {
    out_.tflg = in_.flags;
    last_rule_.assign(n_, kNoRule);
    MergeProver prover(rules);
    std::vector<std::uint32_t> symbols;
    BpeStatistics& s = out_.statistics;
    for (std::uint32_t id = 0; id < n_; ++id) {
      if (!model(id)) continue;
      ++s.tokens;
      const std::string_view text = at(in_.raw, id);
      bool reachable = false;
      if (spell(text, symbols)) {
        const MergeOutcome outcome = prover.run(symbols);
        if (outcome.single) {
          if (outcome.symbol != id) fail("tokens " + number(outcome.symbol) + " and " + number(id) + " have the same text");
          reachable = true;
          last_rule_[id] = outcome.last_rule;
        }
      }
      if (reachable) out_.tflg[id] |= TT_TOKEN_REACHABLE, ++s.reachable;
      if (!text.empty() && (reachable || in_.ignore_merges)) out_.tflg[id] |= TT_TOKEN_WHOLE_PIECE;
    }
    s.unreachable = s.tokens - s.reachable;
  }

  void keep_live() {
    BpeStatistics& s = out_.statistics;
    s.merges = in_.merges.size() / 3;
    std::vector<std::uint32_t> made_at(n_, 0);  // 1 + rank of the live rule that makes a token
    for (std::uint32_t r = 0; r < s.merges; ++r) {
      const std::uint32_t left = in_.merges[3 * std::size_t(r)], right = in_.merges[3 * std::size_t(r) + 1],
                          product = in_.merges[3 * std::size_t(r) + 2];
      const bool unproved = tainted_[left] != 0 || tainted_[right] != 0;
      if (last_rule_[product] != r && !unproved) continue;
      s.kept_unproved += unproved;
      out_.live_merges.insert(out_.live_merges.end(), {left, right, product});
      made_at[product] = std::uint32_t(out_.live_merges.size() / 3);
    }
    s.live = out_.live_merges.size() / 3;
    s.dead = s.merges - s.live;
    for (std::uint32_t rank = 0; rank < s.live; ++rank) {
      const std::uint32_t* rule = out_.live_merges.data() + 3 * std::size_t(rank);
      if (made_at[rule[0]] > rank || made_at[rule[1]] > rank) s.monotone = false;
    }
    out_.merges = build_pair_table(out_.live_merges, n_);
  }

  void look_ups() {
    std::uint64_t pieces = 0, existing = 0;
    for (const std::uint8_t f : out_.tflg) pieces += (f & TT_TOKEN_WHOLE_PIECE) != 0, existing += (f & TT_TOKEN_EXISTS) != 0;
    if (pieces != 0) {
      StringTable table(in_.raw, pieces);
      for (std::uint32_t id = 0; id < n_; ++id) {
        if ((out_.tflg[id] & TT_TOKEN_WHOLE_PIECE) == 0) continue;
        const std::uint32_t other = table.add(id);
        if (other != id) fail("tokens " + number(other) + " and " + number(id) + " have the same text");
        out_.statistics.max_piece = std::max(out_.statistics.max_piece, std::uint32_t(at(in_.raw, id).size()));
      }
      out_.plin = table.take_lines();
      out_.phsh = table.take_slots();
      if (!out_.plin.empty()) out_.pkey = piece_keys(in_.raw, out_.tflg, TT_TOKEN_WHOLE_PIECE);
    }
    if (existing != 0) {
      StringTable table(in_.strings, existing);
      // An added token goes before a model token of its string.
      for (const std::uint32_t wanted : {std::uint32_t(TT_TOKEN_ADDED), std::uint32_t(0)})
        for (std::uint32_t id = 0; id < n_; ++id) {
          if ((out_.tflg[id] & TT_TOKEN_EXISTS) == 0 || (out_.tflg[id] & TT_TOKEN_ADDED) != wanted) continue;
          const std::uint32_t other = table.add(id);
          if (other != id && (out_.tflg[other] & out_.tflg[id] & TT_TOKEN_MODEL) != 0)
            fail("tokens " + number(other) + " and " + number(id) + " of the model have the same string");
        }
      out_.vlin = table.take_lines();
      out_.vhsh = table.take_slots();
    }
  }

  void cuts() {
    if (out_.statistics.kept_unproved != 0) return;
    const std::vector<std::uint32_t>& live = out_.live_merges;
    bool spelled = true;  // every byte of UTF-8 has a symbol
    for (std::uint32_t b = 0; in_.byte_level && b < 0xF5; ++b) spelled &= symbols_[b] != kNone || b == 0xC0 || b == 0xC1;
    if (spelled) {
      std::vector<std::uint32_t> whole;
      for (std::uint32_t id = 0; id < out_.tflg.size(); ++id)
        if ((out_.tflg[id] & TT_TOKEN_WHOLE_PIECE) != 0 && (out_.tflg[id] & TT_TOKEN_REACHABLE) == 0) whole.push_back(id);
      JoinFilter filter = build_join_filter(live, in_.raw, whole);
      out_.jchr = std::move(filter.pairs);
      out_.jfrg = std::move(filter.fragments);
    }
    if (in_.byte_level) {
      out_.jbyt.assign(8192, 0);
      const auto set = [&](std::uint32_t a, std::uint32_t b) { out_.jbyt[a * 32 + b / 8] |= std::uint8_t(1u << b % 8); };
      for (std::size_t r = 0; r < live.size(); r += 3)
        set(static_cast<unsigned char>(at(in_.raw, live[r]).back()),
            static_cast<unsigned char>(at(in_.raw, live[r + 1]).front()));
      for (std::uint32_t b = 0; b < 256; ++b)
        for (std::uint32_t other = 0; symbols_[b] == kNone && other < 256; ++other) set(b, other), set(other, b);
      return;
    }
    const auto last = [&](std::string_view text) {
      std::size_t i = text.size() - 1;
      while ((static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) --i;
      return text.data() + i;
    };
    std::vector<std::uint64_t> pairs;
    for (std::size_t r = 0; r < live.size(); r += 3) {
      std::uint32_t length;
      const std::uint32_t a = symbols_[decode(last(at(in_.raw, live[r])), length)];
      const std::uint32_t b = symbols_[decode(at(in_.raw, live[r + 1]).data(), length)];
      pairs.push_back(std::uint64_t(a) << 32 | b);
    }
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    out_.jsym.assign(2 * capacity_for(pairs.size()), kNone);
    const std::uint64_t mask = out_.jsym.size() / 2 - 1;
    for (const std::uint64_t pair : pairs) {
      const std::uint32_t a = std::uint32_t(pair >> 32), b = std::uint32_t(pair);
      Probe probe(tt_hash_pair(a, b), mask);
      while (out_.jsym[2 * probe.at()] != kNone) probe.next();
      out_.jsym[2 * probe.at()] = a;
      out_.jsym[2 * probe.at() + 1] = b;
    }
  }

  const BpeInput& in_;
  const std::uint32_t n_;
  std::vector<std::uint32_t> symbols_;    // initial symbol by byte or code point
  std::vector<std::uint8_t> tainted_;     // by id
  std::vector<std::uint32_t> last_rule_;  // by id: the last merge of its own text where that gives the token
  BpeTables out_;
};

}  // namespace

BpeTables build_bpe(const BpeInput& input) { return Builder(input).build(); }

}  // namespace toktier::compile
