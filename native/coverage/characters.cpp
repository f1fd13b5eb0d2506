// Byte strings as parts of UTF-8: see characters.h.
#include "coverage/characters.h"

#include "engine/engine.h"

namespace toktier::coverage {

std::optional<Parts> parts_of(std::string_view bytes) {
  std::size_t begin = 0, end = bytes.size();
  while (begin < end && tt_is_continuation(byte_at(bytes, begin))) ++begin;
  if (begin > 3) return std::nullopt;
  // Any one to three continuation bytes end some character: U+0080.., U+0800.., U+10000.. hold every value of their low bits.
  std::size_t last = end;
  while (last > begin && tt_is_continuation(byte_at(bytes, last - 1))) --last;
  if (last > begin) {  // the last lead byte is at last - 1
    const std::uint8_t lead = byte_at(bytes, last - 1);
    if (lead >= 0xC0 && end - (last - 1) < tt_utf8_length(lead)) end = last - 1;
  }
  const Parts parts{bytes.substr(0, begin), bytes.substr(begin, end - begin), bytes.substr(end)};
  if (validate_utf8(parts.middle) != std::string_view::npos) return std::nullopt;
  if (!parts.tail.empty()) {
    if (byte_at(parts.tail, 0) > 0xF4) return std::nullopt;
    bool completes = false;
    for_each_beginning(parts.tail, [&](std::uint32_t) { return completes = true, false; });
    if (!completes) return std::nullopt;
  }
  return parts;
}

}  // namespace toktier::coverage
