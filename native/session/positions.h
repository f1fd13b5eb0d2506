// Where something stands in a text that grows: in bytes of UTF-8, in code points and in tokens.
#pragma once
#include <cstddef>

namespace toktier {

struct Position {
  std::size_t bytes = 0, code_points = 0, tokens = 0;
};

}  // namespace toktier
