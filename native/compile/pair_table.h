// Builds the table of merges (kernels/shared/pair_table.h): the perfect hash where the vocabulary allows it, else open
// addressing.
#pragma once
#include <cstdint>
#include <vector>

namespace toktier::compile {

struct PairTable {
  std::vector<std::uint8_t> displacement;  // MDIS
  std::vector<std::uint64_t> entries;      // MENT
  std::vector<std::uint32_t> slots;        // PAIR, where there is no compact form
  std::vector<std::uint32_t> product;      // MPRD; empty where orders are products
  std::uint32_t seed = 0;
};

// `rules`: rows left, right, product in rank order, no pair twice. `n_ids`: ids are below. Throws CompileError.
PairTable build_pair_table(const std::vector<std::uint32_t>& rules, std::uint32_t n_ids);

}  // namespace toktier::compile
