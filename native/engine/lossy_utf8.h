// Bytes to valid UTF-8 with U+FFFD for what is not: one for each maximal part of a character, as Rust's from_utf8_lossy
// (and the Unicode standard's recommendation) does it.
#pragma once
#include <string>
#include <string_view>

namespace toktier {

void append_lossy(std::string& out, std::string_view bytes);

}  // namespace toktier
