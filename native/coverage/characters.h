// Byte strings as parts of UTF-8: a token may begin and end inside a character. Which characters complete it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shared/utf8.h"

namespace toktier::coverage {

inline bool is_scalar(std::uint32_t cp) { return cp < 0x110000 && (cp < 0xD800 || cp >= 0xE000); }
inline std::uint32_t utf8_size(std::uint32_t cp) { return cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4; }
inline std::uint8_t byte_at(std::string_view s, std::size_t i) { return static_cast<std::uint8_t>(s[i]); }

inline void append_utf8(std::uint32_t cp, std::string& out) {
  std::uint8_t bytes[4];
  out.append(reinterpret_cast<const char*>(bytes), tt_utf8_write(cp, bytes));
}

struct Parts {
  std::string_view head;    // the last bytes of a character that begins before
  std::string_view middle;  // whole characters
  std::string_view tail;    // the first bytes of a character that ends behind
  bool whole() const { return head.empty() && tail.empty(); }
};

// Nothing where no valid UTF-8 contains these bytes.
std::optional<Parts> parts_of(std::string_view bytes);

// Calls visit(cp) for every scalar value whose UTF-8 ends with `head` and is longer, ascending, until it returns false.
template <typename Visit>
void for_each_ending(std::string_view head, Visit&& visit) {
  std::uint32_t low = 0;
  for (std::size_t i = 0; i < head.size(); ++i) low = low << 6 | (byte_at(head, i) & 0x3Fu);
  const std::uint32_t bits = 6 * std::uint32_t(head.size());
  for (std::uint64_t cp = low; cp < 0x110000; cp += std::uint64_t{1} << bits)
    if (utf8_size(std::uint32_t(cp)) > head.size() && is_scalar(std::uint32_t(cp)) && !visit(std::uint32_t(cp))) return;
}

// The same for those whose UTF-8 begins with `tail` and is longer.
template <typename Visit>
void for_each_beginning(std::string_view tail, Visit&& visit) {
  const std::uint32_t size = tt_utf8_length(byte_at(tail, 0)), missing = 6 * (size - std::uint32_t(tail.size()));
  std::uint32_t high = byte_at(tail, 0) & (size == 2 ? 0x1Fu : size == 3 ? 0x0Fu : 0x07u);
  for (std::size_t i = 1; i < tail.size(); ++i) high = high << 6 | (byte_at(tail, i) & 0x3Fu);
  for (std::uint32_t k = 0; k < 1u << missing; ++k) {
    const std::uint32_t cp = high << missing | k;
    if (is_scalar(cp) && utf8_size(cp) == size && !visit(cp)) return;
  }
}

}  // namespace toktier::coverage
