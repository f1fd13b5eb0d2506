// Positions at which a text may be cut: the ids of the parts are the ids of the whole, and so are the offsets before the
// post-processor (which trims, truncates and pads the whole). A cut stays one whatever is put before or after the text, so a
// stream, a tile or a thread may rely on it before it has seen the rest. Not here: the rule (kernels/shared/cuts.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace toktier {

struct Program;

// Characters behind a cut that its kind depends on, at the most (kernels/shared/cuts.h).
constexpr std::size_t cut_reach = 3;

// TtCutKind at byte `position`; TT_CUT_NONE at both ends. `continued`: the first segment of every later part gets
// neither the prefix space nor what Prepend puts in front. The text is valid UTF-8.
std::uint32_t cut_kind(const Program& program, std::string_view text, std::size_t position, bool continued = false);
// The first cut at `from` or behind it; text.size() where there is none.
std::size_t next_cut(const Program& program, std::string_view text, std::size_t from, bool continued = false);
// Cuts that part the text into `shares` of about one size, the parts behind the first one being continued; fewer where a stretch
// of text has none.
std::vector<std::size_t> share_cuts(const Program& program, std::string_view text, std::size_t shares);
// All of them, ascending, and the kind of each as a byte. Throws TextError for 4 GiB or more.
void list_cuts(const Program& program, std::string_view text, bool continued, std::vector<std::uint32_t>& positions,
               std::string& kinds);

}  // namespace toktier
