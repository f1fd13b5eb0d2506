// The mutation score of class strings over boundary tables: which single-entry changes of the tables they notice. What a
// suite would not notice in a table it does not test. Not here: the strings (toktier/program/coverage.py).
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace toktier::coverage {

// Tables as in docs/program-format.md; entries must be in range.
struct TwoPassTables {
  std::uint32_t n_class, n_left, n_right, left_start, right_end;
  std::vector<std::uint8_t> left, right, matrix;
};

struct OnePassTables {
  std::uint32_t n_class, n_state, start;
  std::vector<std::uint32_t> next;  // [n_state * n_class]
  std::vector<std::uint8_t> actions, end, pending;
};

// A changed entry: which table (two passes: 0 left, 1 right, 2 matrix; one pass: 0 next, 1 actions, 2 end), where, to what.
struct Mutant {
  std::uint32_t table, place, value;
};

// `refused`: changes that the program reader would not take (one pass). `equivalent`: proved, no text tells them from the
// tables (one pass). `survivors`: what no string notices and nothing here proves equivalent; of two passes all of those,
// for the caller to judge.
struct MutationScore {
  std::uint64_t tested = 0, refused = 0, killed = 0, equivalent = 0;
  std::vector<Mutant> survivors;
};

// What anybody can observe is compared: position 0 of a text starts a piece whatever the tables say of it.
MutationScore mutate_two_pass(const TwoPassTables& tables, const std::vector<std::string_view>& strings);
MutationScore mutate_one_pass(const OnePassTables& tables, const std::vector<std::string_view>& strings);

}  // namespace toktier::coverage
