// The loop around tt_chars_join.
#include "joins.h"

#include "program.h"

namespace toktier {

std::string list_joins(const Program& program, std::string_view text) {
  std::string joins;
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  std::uint32_t length = 0, before = 0;
  for (std::size_t at = 0; at < text.size(); at += length) {
    const std::uint32_t cp = tt_utf8_next(bytes + at, length);
    if (at != 0) joins.push_back(static_cast<char>(tt_chars_join(program.joins, before, cp)));
    before = cp;
  }
  return joins;
}

}  // namespace toktier
