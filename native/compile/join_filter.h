// Builds the filter of adjacent characters that a merge may join (kernels/shared/join_filter.h, which says why it is sound).
#pragma once
#include <cstdint>
#include <vector>

#include "compile/bpe_tables.h"

namespace toktier::compile {

struct JoinFilter {
  std::vector<std::uint32_t> pairs, fragments;  // JCHR, JFRG
};

// `rules`: rows left, right, product of the rules that can fire; `raw`: what each id reads; `whole`: ids that a whole piece may
// be although no merges make them. Their characters join too, so that such a piece is never cut.
JoinFilter build_join_filter(const std::vector<std::uint32_t>& rules, const Blob& raw, const std::vector<std::uint32_t>& whole);

}  // namespace toktier::compile
