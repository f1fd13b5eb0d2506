// Which adjacent characters of a text a merge may join, by the filter of kernels/shared/join_filter.h: what the word pipeline
// asks character by character, as a list for tests and measurements. Not where a text may be cut (cuts.h): pieces, normalizer and
// added tokens are not looked at.
#pragma once
#include <string>
#include <string_view>

namespace toktier {

struct Program;

// A byte for each character but the first: 1 where a merge may join it to the one before it. The text is valid UTF-8.
std::string list_joins(const Program& program, std::string_view text);

}  // namespace toktier
