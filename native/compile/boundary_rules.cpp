// Windows of classes → sets of states → what is decided → few products that say so.
#include "boundary_rules.h"

#include <algorithm>
#include <array>
#include <map>

namespace toktier::compile {

namespace {

using States = std::array<std::uint64_t, 4>;  // a bit a state: there are at most 256

void insert(States& set, std::uint32_t state) { set[state >> 6] |= std::uint64_t{1} << (state & 63); }

// Sets of states of one direction, numbered as they are met.
class StateSets {
 public:
  StateSets(const std::uint8_t* step, std::uint32_t n_state, std::uint32_t n_class, std::uint32_t start)
      : step_(step), n_state_(n_state), n_class_(n_class) {
    std::vector<std::uint32_t> queue{start};
    std::vector<bool> seen(n_state);
    seen[start] = true;
    States reachable{}, first{};
    insert(first, start);
    for (std::size_t head = 0; head < queue.size(); ++head) {
      insert(reachable, queue[head]);
      for (std::uint32_t c = 0; c < n_class; ++c) {
        const std::uint32_t next = step[queue[head] * n_class + c];
        if (!seen[next]) queue.push_back(next);
        seen[next] = true;
      }
    }
    any = number(reachable);
    outside = number(first);
  }

  std::uint32_t after(std::uint32_t set, std::uint32_t cls) {
    if (set * n_class_ + cls >= next_.size()) next_.resize((set + 1) * n_class_, none);
    std::uint32_t& known = next_[set * n_class_ + cls];
    if (known != none) return known;
    States to{};
    const States from = sets[set];
    for (std::uint32_t s = 0; s < n_state_; ++s)
      if (from[s >> 6] >> (s & 63) & 1) insert(to, step_[s * n_class_ + cls]);
    return known = number(to);
  }

  std::vector<States> sets;
  std::uint32_t any, outside;  // sets: every reachable state, the state outside of the segment

 private:
  static constexpr std::uint32_t none = 0xFFFFFFFF;

  std::uint32_t number(const States& set) {
    const auto [at, added] = index_.try_emplace(set, static_cast<std::uint32_t>(sets.size()));
    if (added) sets.push_back(set);
    return at->second;
  }

  const std::uint8_t* step_;
  std::uint32_t n_state_, n_class_;
  std::map<States, std::uint32_t> index_;
  std::vector<std::uint32_t> next_;
};

constexpr std::uint8_t undecided = 3;

std::uint8_t verdict(const TtBoundary& b, const States& left, const States& right) {
  std::uint32_t seen = 0;
  for (std::uint32_t l = 0; l < b.n_left; ++l) {
    if ((left[l >> 6] >> (l & 63) & 1) == 0) continue;
    for (std::uint32_t r = 0; r < b.n_right; ++r)
      if (right[r >> 6] >> (r & 63) & 1) seen |= 1u << b.matrix[l * b.n_right + r];
  }
  return seen == 1 ? 0 : seen == 2 ? 1 : seen == 4 ? 2 : undecided;
}

using Types = std::uint64_t;  // a bit a kind of side
constexpr std::size_t most_types = 64;

// The two sides of a window, each as a function from its classes to one of few types, and what each two types decide.
struct Window {
  std::uint32_t n = 0;                 // classes, the outside included
  std::vector<std::uint8_t> left;      // [n³] type, none where the classes cannot stand so
  std::vector<std::uint8_t> right;     // [n²]
  std::vector<std::uint8_t> decided;   // [left types][right types]
  std::uint32_t n_left = 0, n_right = 0;
  static constexpr std::uint8_t none = 0xFF;
};

// Numbers equal rows; false where they are too many.
bool type_rows(const std::vector<std::vector<std::uint8_t>>& rows, std::vector<std::uint8_t>& type, std::uint32_t& count) {
  std::map<std::vector<std::uint8_t>, std::uint32_t> index;
  for (const auto& row : rows) type.push_back(static_cast<std::uint8_t>(index.try_emplace(row, index.size()).first->second));
  count = static_cast<std::uint32_t>(index.size());
  return count <= most_types;
}

bool find_window(const TtBoundary& b, Window& w) {
  const std::uint32_t n = w.n = b.n_class + 1, out = b.n_class;
  StateSets left(b.left, b.n_left, b.n_class, b.left_start), right(b.right, b.n_right, b.n_class, b.right_end);
  constexpr std::uint32_t none = 0xFFFFFFFF;
  std::vector<std::uint32_t> left_of(n * n * n, none), right_of(n * n, none);
  // The outside comes before every class: "no character here" is said of the farther places first.
  const auto enter = [&](StateSets& sets, std::uint32_t set, std::uint32_t cls, bool all_out, bool& now_out) {
    now_out = all_out && cls == out;
    if (now_out) return sets.outside;
    if (cls == out) return none;
    return sets.after(set, cls);
  };
  for (std::uint32_t a = 0; a < n; ++a) {
    bool out_a, out_b, out_c;
    const std::uint32_t sa = enter(left, left.any, a, true, out_a);
    for (std::uint32_t c1 = 0; c1 < n; ++c1) {
      const std::uint32_t sb = enter(left, sa, c1, out_a, out_b);
      if (sb == none) continue;
      for (std::uint32_t c = 0; c < n; ++c) left_of[(a * n + c1) * n + c] = enter(left, sb, c, out_b, out_c);
    }
  }
  for (std::uint32_t d = 0; d < n; ++d) {
    bool out_d, out_c;
    const std::uint32_t sd = enter(right, right.any, d, true, out_d);
    for (std::uint32_t c = 0; c < out; ++c) right_of[c * n + d] = enter(right, sd, c, out_d, out_c);
  }
  // Rows of what each left set decides with each right set; equal rows and columns are one type.
  std::vector<std::vector<std::uint8_t>> rows(left.sets.size()), columns(right.sets.size());
  for (std::size_t l = 0; l < rows.size(); ++l)
    for (std::size_t r = 0; r < columns.size(); ++r) {
      const std::uint8_t v = verdict(b, left.sets[l], right.sets[r]);
      rows[l].push_back(v);
      columns[r].push_back(v);
    }
  std::vector<std::uint8_t> row_type, column_type;
  if (!type_rows(rows, row_type, w.n_left) || !type_rows(columns, column_type, w.n_right)) return false;
  w.decided.assign(w.n_left * w.n_right, 0);
  for (std::size_t l = 0; l < rows.size(); ++l)
    for (std::size_t r = 0; r < columns.size(); ++r) w.decided[row_type[l] * w.n_right + column_type[r]] = rows[l][r];
  for (const std::uint32_t set : left_of) w.left.push_back(set == none ? Window::none : row_type[set]);
  for (const std::uint32_t set : right_of) w.right.push_back(set == none ? Window::none : column_type[set]);
  return true;
}

// How often characters of ASCII stand in text, in thousandths: it decides which windows may be given to the automaton when
// terms run out. A guess is enough: it moves time, never a result.
double usual(std::uint32_t c) {
  constexpr double letters[26] = {65, 12, 22, 34, 100, 18, 16, 48, 56, 1,  6,  33, 20,
                                  56, 60, 15, 1,  48,  50, 72, 22, 8,  19, 1, 16, 1};
  if (c >= 'a' && c <= 'z') return letters[c - 'a'];
  if (c >= 'A' && c <= 'Z') return letters[c - 'A'] / 20;
  if (c == ' ') return 170;
  if (c == '\n') return 15;
  if (c >= '0' && c <= '9') return 6;
  if (c < ' ' || c == 127) return c == '\t' ? 2 : 0.001;
  return c == '.' || c == ',' || c == '-' || c == '(' || c == ')' || c == '"' || c == '\'' || c == '_' ? 6 : 1;
}

using Classes = std::uint64_t;  // a bit a class; of a reduced place, a bit a group of classes
struct Term {
  Classes place[TT_RULE_PLACES];
};

template <typename F>
void each_bit(std::uint64_t bits, F&& f) {
  for (; bits != 0; bits &= bits - 1) f(static_cast<std::uint32_t>(__builtin_ctzll(bits)));
}

// The window over groups of classes: at each place those that no other place can tell apart are one.
struct Groups {
  std::vector<std::uint8_t> group[TT_RULE_PLACES];  // by class
  std::uint32_t n[TT_RULE_PLACES];
  std::vector<std::uint8_t> left, right;  // types by groups
  std::vector<double> weight[TT_RULE_PLACES];
};

Groups group_classes(const Window& w, const std::vector<double>& weights) {
  Groups g;
  const std::uint32_t n = w.n;
  std::vector<std::uint32_t> first[TT_RULE_PLACES];  // a class of each group
  const auto at = [&](std::uint32_t p, std::uint32_t cls, std::uint32_t x, std::uint32_t y) {
    switch (p) {
      case 0: return w.left[(cls * n + x) * n + y];
      case 1: return w.left[(x * n + cls) * n + y];
      case 2: return w.left[(x * n + y) * n + cls];
      case 3: return w.right[cls * n + x];
      default: return w.right[x * n + cls];
    }
  };
  for (std::uint32_t p = 0; p < TT_RULE_PLACES; ++p) {
    std::map<std::vector<std::uint8_t>, std::uint32_t> index;
    for (std::uint32_t c = 0; c < n; ++c) {
      std::vector<std::uint8_t> row;
      for (std::uint32_t x = 0; x < n; ++x)
        for (std::uint32_t y = 0; y < (p < TT_RULE_BEFORE ? n : 1); ++y) row.push_back(at(p, c, x, y));
      const auto [found, added] = index.try_emplace(std::move(row), static_cast<std::uint32_t>(index.size()));
      if (added) {
        first[p].push_back(c);
        g.weight[p].push_back(0);
      }
      g.group[p].push_back(static_cast<std::uint8_t>(found->second));
      g.weight[p][found->second] += weights[c];
    }
    g.n[p] = static_cast<std::uint32_t>(index.size());
  }
  for (const std::uint32_t a : first[0])
    for (const std::uint32_t b : first[1])
      for (const std::uint32_t c : first[2]) g.left.push_back(w.left[(a * n + b) * n + c]);
  for (const std::uint32_t c : first[3])
    for (const std::uint32_t d : first[4]) g.right.push_back(w.right[c * n + d]);
  return g;
}

// Covers every window whose verdict is in `wanted` by products that hold no window whose verdict is in `avoided`.
class Cover {
 public:
  Cover(const Window& w, const Groups& g, std::uint32_t wanted, std::uint32_t avoided) : g_(g), off_(w.n_left), on_(w.n_left) {
    for (std::uint32_t l = 0; l < w.n_left; ++l)
      for (std::uint32_t r = 0; r < w.n_right; ++r) {
        const std::uint32_t v = 1u << w.decided[l * w.n_right + r];
        if (v & avoided) off_[l] |= Types{1} << r;
        if (v & wanted) on_[l] |= Types{1} << r;
      }
    words_ = (g.right.size() + 63) / 64;
    open_.assign(g.left.size() * words_, 0);
    for (std::size_t l = 0; l < g.left.size(); ++l)
      for (std::size_t r = 0; r < g.right.size(); ++r)
        if (g.left[l] != Window::none && g.right[r] != Window::none && (on_[g.left[l]] >> g.right[r] & 1) != 0)
          open_[l * words_ + r / 64] |= std::uint64_t{1} << (r % 64);
  }

  // Greedy: of some primes over windows that are still open, the one that closes the most.
  std::vector<Term> run() {
    std::vector<Term> terms;
    for (;;) {
      std::vector<std::size_t> seeds;
      for (std::size_t i = 0; i < open_.size(); ++i)
        if (open_[i] != 0) seeds.push_back(i);
      if (seeds.empty()) return terms;
      Term best{};
      std::size_t most = 0;
      for (std::uint32_t k = 0; k < tries; ++k) {
        const std::size_t at = seeds[seeds.size() * k / tries];
        const std::size_t left = at / words_, right = at % words_ * 64 + static_cast<std::size_t>(__builtin_ctzll(open_[at]));
        const Term seed{{Classes{1} << left / (g_.n[1] * g_.n[2]), Classes{1} << left / g_.n[2] % g_.n[1],
                         Classes{1} << left % g_.n[2], Classes{1} << right / g_.n[4], Classes{1} << right % g_.n[4]}};
        for (const auto& order : orders) {
          Term t = seed;
          for (const std::uint32_t p : order) grow(t, p);
          const std::size_t closes = count(t, false);
          if (closes > most) {
            most = closes;
            best = t;
          }
        }
      }
      count(best, true);
      terms.push_back(best);
    }
  }

 private:
  static constexpr std::uint32_t tries = 16;
  static constexpr std::uint32_t orders[][TT_RULE_PLACES] = {
      {0, 4, 1, 3, 2}, {0, 1, 2, 4, 3}, {4, 3, 0, 1, 2}, {1, 0, 4, 2, 3}, {2, 3, 1, 4, 0}, {3, 2, 4, 1, 0}};

  Types left_types(const Classes* p) const {
    Types types = 0;
    each_bit(p[0], [&](std::uint32_t a) {
      each_bit(p[1], [&](std::uint32_t b) {
        each_bit(p[2], [&](std::uint32_t c) {
          const std::uint8_t type = g_.left[(a * g_.n[1] + b) * g_.n[2] + c];
          if (type != Window::none) types |= Types{1} << type;
        });
      });
    });
    return types;
  }
  Types right_types(const Classes* p) const {
    Types types = 0;
    each_bit(p[3], [&](std::uint32_t c) {
      each_bit(p[4], [&](std::uint32_t d) {
        const std::uint8_t type = g_.right[c * g_.n[4] + d];
        if (type != Window::none) types |= Types{1} << type;
      });
    });
    return types;
  }

  // Every class that may be added at the place is.
  void grow(Term& t, std::uint32_t p) const {
    const Types left = left_types(t.place), right = right_types(t.place);
    Types banned = 0;  // right types that the left ones do not go with
    each_bit(left, [&](std::uint32_t l) { banned |= off_[l]; });
    for (std::uint32_t c = 0; c < g_.n[p]; ++c) {
      if (t.place[p] >> c & 1) continue;
      Term one = t;
      one.place[p] = Classes{1} << c;
      bool ok = true;
      if (p < TT_RULE_BEFORE)
        each_bit(left_types(one.place), [&](std::uint32_t l) { ok = ok && (off_[l] & right) == 0; });
      else
        ok = (right_types(one.place) & banned) == 0;
      if (ok) t.place[p] |= one.place[p];
    }
  }

  // Windows of the term that are open; closes them if told so.
  std::size_t count(const Term& t, bool close) {
    std::vector<std::uint64_t> mask(words_);
    each_bit(t.place[3], [&](std::uint32_t c) {
      each_bit(t.place[4], [&](std::uint32_t d) {
        const std::size_t r = c * g_.n[4] + d;
        mask[r / 64] |= std::uint64_t{1} << (r % 64);
      });
    });
    std::size_t n = 0;
    each_bit(t.place[0], [&](std::uint32_t a) {
      each_bit(t.place[1], [&](std::uint32_t b) {
        each_bit(t.place[2], [&](std::uint32_t c) {
          std::uint64_t* const row = &open_[((a * g_.n[1] + b) * g_.n[2] + c) * words_];
          for (std::size_t i = 0; i < words_; ++i) {
            n += static_cast<std::size_t>(__builtin_popcountll(row[i] & mask[i]));
            if (close) row[i] &= ~mask[i];
          }
        });
      });
    });
    return n;
  }

  const Groups& g_;
  std::vector<Types> off_, on_;
  std::size_t words_;
  std::vector<std::uint64_t> open_;
};

double weight(const Groups& g, const Term& t) {
  double product = 1;
  for (std::uint32_t p = 0; p < TT_RULE_PLACES; ++p) {
    double sum = 0;
    each_bit(t.place[p], [&](std::uint32_t c) { sum += g.weight[p][c]; });
    product *= sum;
  }
  return product;
}

// Terms that may hold too much are joined until few are left, those first that take the least text in.
void join(const Groups& g, std::vector<Term>& terms, std::size_t limit) {
  while (terms.size() > limit) {
    std::size_t a = 0, b = 1;
    double least = 1e300;
    const auto joined = [&](std::size_t i, std::size_t j) {
      Term t;
      for (std::uint32_t p = 0; p < TT_RULE_PLACES; ++p) t.place[p] = terms[i].place[p] | terms[j].place[p];
      return t;
    };
    for (std::size_t i = 0; i < terms.size(); ++i)
      for (std::size_t j = i + 1; j < terms.size(); ++j) {
        const double more = weight(g, joined(i, j)) - weight(g, terms[i]) - weight(g, terms[j]);
        if (more < least) {
          least = more;
          a = i;
          b = j;
        }
      }
    terms[a] = joined(a, b);
    terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(b));
  }
}

}  // namespace

BoundaryRules find_boundary_rules(const TtBoundary& b, const std::uint8_t* ascii_class) {
  BoundaryRules rules;
  if (b.n_class == 0 || b.n_class > TT_MAX_RULE_CLASSES) return rules;
  Window w;
  if (!find_window(b, w)) return rules;
  std::vector<double> weights(w.n, 0.02);  // a class without a character of ASCII, and the outside, are rare
  for (std::uint32_t c = 0; c < 128; ++c) weights[ascii_class[c]] += usual(c);
  const Groups g = group_classes(w, weights);
  std::vector<Term> starts = Cover(w, g, 1 << 1 | 1 << 2, 1 << 0).run();
  std::vector<Term> drops = Cover(w, g, 1 << 2, 1 << 0 | 1 << 1).run();
  std::vector<Term> open = Cover(w, g, 1 << undecided, 1 << 0 | 1 << 1 | 1 << 2).run();
  // More terms than bits: what they would have said is left to the automaton.
  while (starts.size() > TT_RULE_STARTS) {
    open.push_back(starts.back());
    starts.pop_back();
  }
  while (drops.size() > TT_RULE_DROPS) {
    open.push_back(drops.back());
    drops.pop_back();
  }
  join(g, open, TT_RULE_UNDECIDED);
  rules.starts = static_cast<std::uint32_t>(starts.size());
  rules.drops = static_cast<std::uint32_t>(drops.size());
  rules.undecided = static_cast<std::uint32_t>(open.size());
  rules.terms.assign(TT_RULE_PLACES * w.n, 0);
  const auto write = [&](const std::vector<Term>& terms, std::uint32_t bit) {
    for (const Term& t : terms) {
      for (std::uint32_t p = 0; p < TT_RULE_PLACES; ++p)
        for (std::uint32_t c = 0; c < w.n; ++c)
          if (t.place[p] >> g.group[p][c] & 1) rules.terms[p * w.n + c] |= std::uint64_t{1} << bit;
      ++bit;
    }
  };
  write(starts, 0);
  write(drops, TT_RULE_STARTS);
  write(open, TT_RULE_STARTS + TT_RULE_DROPS);
  return rules;
}

}  // namespace toktier::compile
