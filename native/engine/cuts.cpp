// The loops around the step of kernels/shared/cuts.h.
#include "cuts.h"

#include <algorithm>

#include "faults.h"
#include "program.h"
#include "segment.h"

namespace toktier {

std::uint32_t cut_kind(const Program& program, std::string_view text, std::size_t position, bool continued) {
  if (position == 0 || position >= text.size()) return TT_CUT_NONE;
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  return tt_cut_kind(program.cuts, program.boundary, bytes, text.size(), position, continued);
}

std::size_t next_cut(const Program& program, std::string_view text, std::size_t from, bool continued) {
  for (std::size_t p = std::max<std::size_t>(from, 1); p < text.size(); ++p)
    if (cut_kind(program, text, p, continued) != TT_CUT_NONE) return p;
  return text.size();
}

std::vector<std::size_t> share_cuts(const Program& program, std::string_view text, std::size_t shares) {
  // A look costs some hundred bytes' worth of encoding: where so many in a row find nothing, the next share is tried.
  constexpr std::size_t most_looks = 4096;
  std::vector<std::size_t> cuts;
  for (std::size_t k = 1; k < shares; ++k) {
    const std::size_t wanted = text.size() / shares * k;
    std::size_t p = std::max(wanted, cuts.empty() ? 1 : cuts.back() + 1);
    const std::size_t end = std::min(wanted + most_looks, text.size());
    while (p < end && (TOKTIER_FAULT(share_cut) ? tt_is_continuation(static_cast<std::uint8_t>(text[p]))
                                                : cut_kind(program, text, p, true) == TT_CUT_NONE))
      ++p;
    if (p < end) cuts.push_back(p);
  }
  return cuts;
}

void list_cuts(const Program& program, std::string_view text, bool continued, std::vector<std::uint32_t>& positions,
               std::string& kinds) {
  positions.clear();
  kinds.clear();
  if (text.size() > longest_text) throw TextError{0, "the text is longer than 4 GiB"};
  for (std::size_t p = 1; p < text.size(); ++p) {
    const std::uint32_t kind = cut_kind(program, text, p, continued);
    if (kind == TT_CUT_NONE) continue;
    positions.push_back(static_cast<std::uint32_t>(p));
    kinds.push_back(static_cast<char>(kind));
  }
}

}  // namespace toktier
