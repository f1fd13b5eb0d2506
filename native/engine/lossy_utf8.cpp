// Runs of valid text are found by validate_utf8 and copied whole; only the faults are looked at byte by byte.
#include "lossy_utf8.h"

#include <algorithm>
#include <cstdint>

#include "engine.h"

namespace toktier {

namespace {

// Length of the maximal part of a character at the start of `s`, which is malformed there: at least 1.
std::size_t malformed_length(std::string_view s) {
  const auto at = [&](std::size_t i) { return i < s.size() ? static_cast<std::uint8_t>(s[i]) : std::uint8_t{0}; };
  const std::uint8_t lead = at(0);
  const std::size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                             : lead >= 0xE0 && lead <= 0xEF ? 3
                             : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                            : 1;
  if (length < 3) return 1;
  const std::uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const std::uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (at(1) < low || at(1) > high) return 1;
  return length == 4 && (at(2) & 0xC0) == 0x80 ? 3 : 2;
}

}  // namespace

void append_lossy(std::string& out, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t fault = std::min(validate_utf8(bytes), bytes.size());
    out.append(bytes.substr(0, fault));
    bytes.remove_prefix(fault);
    if (bytes.empty()) return;
    out.append("\xEF\xBF\xBD");
    bytes.remove_prefix(malformed_length(bytes));
  }
}

}  // namespace toktier
