// Strict UTF-8 validation: the shapes of RFC 3629, one pass, ASCII eight bytes at a time.
#include <cstdint>
#include <cstring>

#include "engine.h"

namespace toktier {

std::size_t validate_utf8(std::string_view bytes) {
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  const std::size_t n = bytes.size();
  const auto continues = [p](std::size_t i) { return (p[i] & 0xC0) == 0x80; };
  for (std::size_t i = 0; i < n;) {
    std::uint64_t eight;
    while (n - i >= 8 && (std::memcpy(&eight, p + i, 8), (eight & 0x8080808080808080ull) == 0)) i += 8;
    if (i == n) break;
    const unsigned char c = p[i];
    if (c < 0x80) {
      ++i;
      continue;
    }
    if (c >= 0xC2 && c <= 0xDF) {
      if (n - i < 2 || !continues(i + 1)) return i;
      i += 2;
    } else if (c >= 0xE0 && c <= 0xEF) {
      if (n - i < 3 || !continues(i + 1) || !continues(i + 2)) return i;
      if ((c == 0xE0 && p[i + 1] < 0xA0) || (c == 0xED && p[i + 1] > 0x9F)) return i;
      i += 3;
    } else if (c >= 0xF0 && c <= 0xF4) {
      if (n - i < 4 || !continues(i + 1) || !continues(i + 2) || !continues(i + 3)) return i;
      if ((c == 0xF0 && p[i + 1] < 0x90) || (c == 0xF4 && p[i + 1] > 0x8F)) return i;
      i += 4;
    } else {
      return i;
    }
  }
  return std::string_view::npos;
}

}  // namespace toktier
