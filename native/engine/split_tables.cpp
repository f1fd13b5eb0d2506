// Two bytes of a character often tell its class already; two classes often tell the state. Both are tabulated here.
#include "split_tables.h"

#include <algorithm>
#include <cstring>

namespace toktier {

namespace {

constexpr std::uint32_t none = 0xFFFFFFFF;

// Class of a row of 64 characters, or `mixed`.
std::uint8_t class_of_row(const TtBoundary& b, std::uint32_t first) {
  const std::uint8_t* const row = b.class2 + (std::uint32_t{b.class1[first >> TT_TRIE_SHIFT]} << TT_TRIE_SHIFT) + (first & 64);
  return std::memcmp(row, row + 1, 63) == 0 ? row[0] : SplitTables::mixed;  // each as the next
}

// Class of all characters of [first, end), which are whole rows, or `mixed`.
std::uint8_t class_of_rows(const TtBoundary& b, std::uint32_t first, std::uint32_t end) {
  const std::uint8_t cls = class_of_row(b, first);
  for (; first < end; first += 64)
    if (class_of_row(b, first) != cls) return SplitTables::mixed;
  return cls;
}

void class_tables(const TtBoundary& b, SplitTables& t) {
  t.class1 = b.class1;
  t.class2 = b.class2;
  t.n_class = b.n_class;
  for (std::uint32_t c = 0; c < 128; ++c) t.ascii[c] = static_cast<std::uint8_t>(tt_class(b, c));
  std::fill_n(t.lead, 128, std::uint8_t{0});  // continuation bytes, and what is no UTF-8
  std::fill_n(t.second[0], sizeof t.second, std::uint8_t{0});
  for (std::uint32_t byte = 0xC2; byte < 0xE0; ++byte) t.lead[byte & 0x7F] = class_of_row(b, (byte & 0x1F) << 6);
  for (std::uint32_t byte = 0xE0; byte <= 0xF4; ++byte) {
    const bool three = byte < 0xF0;
    std::uint8_t all = 0;
    bool same = true, any = false;
    for (std::uint32_t k = 0; k < 64; ++k) {
      const std::uint32_t first = three ? (byte & 0xF) << 12 | k << 6 : (byte & 7) << 18 | k << 12;
      // Rows that no UTF-8 has: overlong forms, surrogates, beyond the last code point.
      if (first < (three ? 0x800u : 0x10000u) || first > 0x10FFFF || (three && first >= 0xD800 && first < 0xE000)) continue;
      const std::uint8_t cls = three ? class_of_row(b, first) : class_of_rows(b, first, first + 0x1000);
      t.second[byte & 0x1F][k] = cls;
      same = same && (!any || cls == all);
      all = cls;
      any = true;
    }
    t.lead[byte & 0x7F] = same && all != SplitTables::mixed ? all : SplitTables::mixed;
  }
}

void rule_tables(const TtBoundary& b, const std::uint64_t* rules, SplitTables& t) {
  std::fill_n(t.terms[0][0], sizeof t.terms, std::uint8_t{0});
  std::fill_n(t.words[0], sizeof t.words / sizeof t.words[0][0], std::uint64_t{0});
  std::uint64_t all = 0;
  for (std::uint32_t p = 0; p < TT_RULE_PLACES; ++p)
    for (std::uint32_t c = 0; c <= b.n_class; ++c) {
      const std::uint64_t word = t.words[p][c] = rules[p * (b.n_class + 1) + c];
      for (std::uint32_t set = 0; set < SplitTables::sets; ++set)
        t.terms[set][p][c] = static_cast<std::uint8_t>(word >> (8 * set));
      all |= word;
    }
  const auto used = [&](std::uint32_t set) { return (all >> (8 * set) & 0xFF) != 0; };
  t.start_sets = t.undecided_sets = 0;
  while (t.start_sets < SplitTables::drops && used(t.start_sets)) ++t.start_sets;
  constexpr std::uint32_t open = SplitTables::undecided, most = SplitTables::sets - open;
  while (t.undecided_sets < most && used(open + t.undecided_sets)) ++t.undecided_sets;
  t.any_drops = used(SplitTables::drops);
}

void known_states(const TtBoundary& b, std::vector<std::uint32_t>& known) {
  const std::uint32_t n = b.n_class;
  // States that are reached, and how many positions each has pending (check_token_automaton: always the same number).
  constexpr std::uint8_t unseen = 0xFF;
  std::vector<std::uint8_t> pending(b.n_token, unseen);
  std::vector<std::uint32_t> queue{b.token_start};
  pending[b.token_start] = 0;
  for (std::size_t head = 0; head < queue.size(); ++head)
    for (std::uint32_t c = 0; c < n; ++c) {
      const std::size_t cell = std::size_t{queue[head]} * n + c;
      const std::uint32_t next = b.token_next[cell], action = b.token_action[cell];
      if (pending[next] != unseen) continue;
      std::uint8_t kept = (action & 3) == 3;
      for (std::uint32_t k = 0; k < pending[queue[head]]; ++k) kept += (action >> (2 * k + 2) & 3) == 0;
      pending[next] = kept;
      queue.push_back(next);
    }
  known.assign(std::size_t{n + 1} * (n + 1), 0);
  const auto only = [&](std::uint32_t state) { return pending[state] == 0 ? state * n + 1 : 0; };
  known[n * (n + 1) + n] = only(b.token_start);
  for (std::uint32_t c = 0; c < n; ++c) known[n * (n + 1) + c] = only(b.token_next[b.token_start * n + c]);
  std::vector<bool> after(b.n_token);
  for (std::uint32_t a = 0; a < n; ++a) {
    std::fill(after.begin(), after.end(), false);
    for (const std::uint32_t s : queue) after[b.token_next[std::size_t{s} * n + a]] = true;
    for (std::uint32_t c = 0; c < n; ++c) {
      std::uint32_t state = none;
      bool one = true;
      for (std::uint32_t s = 0; s < b.n_token && one; ++s) {
        if (!after[s]) continue;
        const std::uint32_t next = b.token_next[std::size_t{s} * n + c];
        one = state == none || state == next;
        state = next;
      }
      known[a * (n + 1) + c] = one ? only(state) : 0;
    }
  }
}

}  // namespace

void make_split_program(const TtBoundary& b, const std::uint64_t* rules, SplitProgram& out) {
  class_tables(b, out.lanes);
  rule_tables(b, rules, out.lanes);
  known_states(b, out.known);
  out.drops = false;
  for (std::uint32_t k = 0; k < b.n_left * b.n_right; ++k) out.drops = out.drops || b.matrix[k] == TT_BOUNDARY_DROPPED;
  out.usable = true;
}

}  // namespace toktier
