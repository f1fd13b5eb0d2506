// Each mutant runs over the strings that read its entry, shortest first, until one comes out otherwise: nearly all are
// noticed by the first few, so that 22,000 mutants of 8,000 strings take a fraction of a second.
#include "coverage/boundary_mutants.h"

#include <deque>
#include <map>
#include <string>
#include <tuple>

namespace toktier::coverage {

namespace {

constexpr std::uint32_t max_pending = 3;
constexpr std::uint32_t not_yet = 3;

std::uint8_t class_at(std::string_view text, std::size_t i) { return static_cast<std::uint8_t>(text[i]); }

// Position 0: dropped or not is all that shows.
void observe(std::string& values) {
  if (!values.empty() && values[0] == 0) values[0] = 1;
}

// Rows that read an entry, by entry, in the order of the strings; a row once.
using Readers = std::vector<std::vector<std::uint32_t>>;

void read_by(Readers& readers, std::size_t entry, std::uint32_t row) {
  auto& rows = readers[entry];
  if (rows.empty() || rows.back() != row) rows.push_back(row);
}

struct TwoPassRun {
  std::vector<std::uint8_t> rights;
  std::string values;

  void run(const TwoPassTables& t, std::string_view text) {
    rights.resize(text.size() + 1);
    rights[text.size()] = static_cast<std::uint8_t>(t.right_end);
    for (std::size_t i = text.size(); i-- > 0;) rights[i] = t.right[rights[i + 1] * t.n_class + class_at(text, i)];
    values.resize(text.size());
    std::uint32_t left = t.left_start;
    for (std::size_t i = 0; i < text.size(); ++i) {
      values[i] = static_cast<char>(t.matrix[left * t.n_right + rights[i]]);
      left = t.left[left * t.n_class + class_at(text, i)];
    }
    observe(values);
  }
};

// How many positions an action leaves pending, or a number that nothing has where the program reader would refuse it.
std::uint32_t kept_by(std::uint32_t action, std::uint32_t count) {
  constexpr std::uint32_t refused = 0xFF;
  if (action >> (2 * count + 2) != 0) return refused;
  std::uint32_t kept = 0;
  for (std::uint32_t k = 0; k < count; ++k) {
    const std::uint32_t verdict = action >> (2 * k + 2) & 3;
    if (verdict == 0)
      ++kept;
    else if (kept != 0 && verdict != 2)
      return refused;
  }
  const std::uint32_t own = action & 3;
  if (own != 0 && own != not_yet && kept != 0) return refused;
  kept += own == not_yet;
  return kept <= max_pending ? kept : refused;
}

struct OnePassRun {
  std::string values;

  void run(const OnePassTables& t, std::string_view text) {
    values.assign(text.size(), 0);
    std::size_t pending[max_pending + 1];
    std::uint32_t count = 0, state = t.start;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const std::size_t entry = state * t.n_class + class_at(text, i);
      const std::uint32_t action = t.actions[entry], own = action & 3;
      std::uint32_t kept = 0;
      for (std::uint32_t k = 0; k < count; ++k) {
        const std::uint32_t verdict = action >> (2 * k + 2) & 3;
        if (verdict == 0)
          pending[kept++] = pending[k];
        else
          values[pending[k]] = verdict == 1 ? 1 : verdict == 2 ? 0 : 2;
      }
      if (own == not_yet)
        pending[kept++] = i;
      else
        values[i] = static_cast<char>(own);
      count = kept;
      state = t.next[entry];
    }
    for (std::uint32_t k = 0; k < count; ++k) values[pending[k]] = static_cast<char>(t.end[state] >> (2 * k) & 3);
    observe(values);
  }
};

// True when no text tells the two apart: in all pairs of states that one text reaches they do the same, but for whether a
// piece starts at position 0. Exact where both decide at the same moment, which is what a change of one entry keeps unless
// it is found out; false is no proof of a difference.
bool same(const OnePassTables& a, const OnePassTables& b) {
  struct Node {
    std::uint32_t left, right;
    bool first, zero;  // nothing read yet; position 0 is the oldest pending one
    auto key() const { return std::tie(left, right, first, zero); }
    bool operator<(const Node& other) const { return key() < other.key(); }
  };
  const auto alike = [](std::uint32_t x, std::uint32_t y, std::uint32_t one, std::uint32_t none) {
    return x == y || ((x == one || x == none) && (y == one || y == none));
  };
  std::map<Node, bool> seen;
  std::deque<Node> queue{{a.start, b.start, true, false}};
  seen[queue.front()] = true;
  while (!queue.empty()) {
    const Node n = queue.front();
    queue.pop_front();
    if (a.pending[n.left] != b.pending[n.right]) return false;
    const std::uint32_t x = a.end[n.left], y = b.end[n.right];
    if (n.zero ? (x >> 2 != y >> 2 || !alike(x & 3, y & 3, 1, 0)) : x != y) return false;
    for (std::uint32_t c = 0; c < a.n_class; ++c) {
      const std::size_t at_a = n.left * a.n_class + c, at_b = n.right * b.n_class + c;
      const std::uint32_t p = a.actions[at_a], q = b.actions[at_b];
      bool zero = false;
      if (n.first) {
        if (p >> 2 != q >> 2 || !alike(p & 3, q & 3, 1, 0)) return false;
        zero = (p & 3) == not_yet;
      } else if (n.zero) {
        const std::uint32_t oldest = 0xC;
        if ((p & ~oldest) != (q & ~oldest) || !alike(p >> 2 & 3, q >> 2 & 3, 1, 2)) return false;
        zero = (p & oldest) == 0;
      } else if (p != q) {
        return false;
      }
      const Node next{a.next[at_a], b.next[at_b], false, zero};
      if (seen.emplace(next, true).second) queue.push_back(next);
    }
  }
  return true;
}

}  // namespace

MutationScore mutate_two_pass(const TwoPassTables& tables, const std::vector<std::string_view>& strings) {
  TwoPassTables t = tables;
  TwoPassRun run;
  std::vector<std::string> expected(strings.size());
  Readers readers[3] = {Readers(t.left.size()), Readers(t.right.size()), Readers(t.matrix.size())};
  for (std::uint32_t row = 0; row < strings.size(); ++row) {
    const std::string_view text = strings[row];
    run.run(t, text);
    expected[row] = run.values;
    std::uint32_t left = t.left_start;
    for (std::size_t i = 0; i < text.size(); ++i) {
      read_by(readers[2], left * t.n_right + run.rights[i], row);
      read_by(readers[1], run.rights[i + 1] * t.n_class + class_at(text, i), row);
      const std::size_t entry = left * t.n_class + class_at(text, i);
      read_by(readers[0], entry, row);
      left = t.left[entry];
    }
  }
  MutationScore score;
  std::vector<std::uint8_t>* const changed[3] = {&t.left, &t.right, &t.matrix};
  const std::uint32_t values[3] = {t.n_left, t.n_right, 3};
  for (std::uint32_t table = 0; table < 3; ++table)
    for (std::uint32_t place = 0; place < changed[table]->size(); ++place) {
      std::uint8_t& entry = (*changed[table])[place];
      const std::uint8_t old = entry;
      for (std::uint32_t value = 0; value < values[table]; ++value) {
        if (value == old) continue;
        entry = static_cast<std::uint8_t>(value);
        ++score.tested;
        bool killed = false;
        for (const std::uint32_t row : readers[table][place]) {
          run.run(t, strings[row]);
          killed = run.values != expected[row];
          if (killed) break;
        }
        if (killed)
          ++score.killed;
        else
          score.survivors.push_back({table, place, value});
      }
      entry = old;
    }
  return score;
}

MutationScore mutate_one_pass(const OnePassTables& tables, const std::vector<std::string_view>& strings) {
  OnePassTables t = tables;
  OnePassRun run;
  std::vector<std::string> expected(strings.size());
  Readers entries(t.next.size()), ends(t.n_state);
  for (std::uint32_t row = 0; row < strings.size(); ++row) {
    run.run(t, strings[row]);
    expected[row] = run.values;
    std::uint32_t state = t.start;
    for (std::size_t i = 0; i < strings[row].size(); ++i) {
      const std::size_t entry = state * t.n_class + class_at(strings[row], i);
      read_by(entries, entry, row);
      state = t.next[entry];
    }
    read_by(ends, state, row);
  }
  MutationScore score;
  const auto judge = [&](const std::vector<std::uint32_t>& rows, Mutant mutant) {
    ++score.tested;
    for (const std::uint32_t row : rows) {
      run.run(t, strings[row]);
      if (run.values != expected[row]) {
        ++score.killed;
        return;
      }
    }
    if (same(tables, t))
      ++score.equivalent;
    else
      score.survivors.push_back(mutant);
  };
  for (std::uint32_t place = 0; place < t.next.size(); ++place) {
    const std::uint32_t target = t.next[place], action = t.actions[place], count = t.pending[place / t.n_class];
    for (std::uint32_t value = 0; value < t.n_state; ++value) {
      if (value == target) continue;
      if (t.pending[value] != t.pending[target]) {
        ++score.refused;
        continue;
      }
      t.next[place] = value;
      judge(entries[place], {0, place, value});
    }
    t.next[place] = target;
    for (std::uint32_t value = 0; value < 256; ++value) {
      if (value == action) continue;
      if (kept_by(value, count) != t.pending[target]) {
        ++score.refused;
        continue;
      }
      t.actions[place] = static_cast<std::uint8_t>(value);
      judge(entries[place], {1, place, value});
    }
    t.actions[place] = static_cast<std::uint8_t>(action);
  }
  for (std::uint32_t state = 0; state < t.n_state; ++state) {
    const std::uint8_t old = t.end[state];
    for (std::uint32_t value = 0; value < 256; ++value) {
      if (value == old) continue;
      bool taken = value >> (2 * t.pending[state]) == 0;
      for (std::uint32_t k = 0; k < t.pending[state]; ++k) taken &= (value >> (2 * k) & 3) != 3;
      if (!taken) {
        ++score.refused;
        continue;
      }
      t.end[state] = static_cast<std::uint8_t>(value);
      judge(ends[state], {2, state, value});
    }
    t.end[state] = old;
  }
  return score;
}

}  // namespace toktier::coverage
