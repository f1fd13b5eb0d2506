#include "cache/special_scan.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace toktier::cache {

namespace {

constexpr std::size_t kMemchrs = 4;  // different first bytes that are searched one by one; more: a table, a byte at a time

}  // namespace

SpecialScan::SpecialScan(std::vector<std::string> strings)
    : strings_(std::move(strings)), sorted_(strings_.size()), pairs_(65536 / 64) {
  std::iota(sorted_.begin(), sorted_.end(), 0u);
  std::sort(sorted_.begin(), sorted_.end(), [&](auto a, auto b) { return strings_[a] < strings_[b]; });
  for (const std::string& string : strings_) {
    const auto first = static_cast<unsigned char>(string[0]);
    if (!begins_[first]) first_.push_back(string[0]);
    begins_[first] = true;
    for (unsigned second = 0; second < 256; ++second)
      if (string.size() == 1 || second == static_cast<unsigned char>(string[1]))
        pairs_[(first * 256 + second) / 64] |= std::uint64_t(1) << (second % 64);
  }
}

// No string begins another, so that the one that begins here, if any, is the last that sorts before or at the text from here.
bool SpecialScan::match(std::string_view text, std::size_t at, std::vector<Occurrence>& out) const {
  if (at + 1 < text.size()) {
    const unsigned pair = static_cast<unsigned char>(text[at]) * 256u + static_cast<unsigned char>(text[at + 1]);
    if ((pairs_[pair / 64] >> (pair % 64) & 1) == 0) return false;
  }
  const std::string_view rest = text.substr(at);
  auto after = std::upper_bound(sorted_.begin(), sorted_.end(), rest,
                                [&](std::string_view value, std::uint32_t i) { return value < strings_[i]; });
  if (after == sorted_.begin() || !rest.starts_with(strings_[*--after])) return false;
  out.push_back({at + strings_[*after].size(), *after});
  return true;
}

void SpecialScan::run(std::string_view text, std::vector<Occurrence>& out) const {
  if (strings_.empty()) return;
  std::size_t at = 0;
  if (first_.size() > kMemchrs) {
    while (at < text.size())
      at = begins_[static_cast<unsigned char>(text[at])] && match(text, at, out) ? out.back().end : at + 1;
    return;
  }
  std::size_t next[kMemchrs];  // of each first byte, from `at` on; text.size(): none
  const auto find = [&](std::size_t k, std::size_t from) {
    const void* found = from < text.size() ? std::memchr(text.data() + from, first_[k], text.size() - from) : nullptr;
    next[k] = found == nullptr ? text.size() : std::size_t(static_cast<const char*>(found) - text.data());
  };
  for (std::size_t k = 0; k < first_.size(); ++k) find(k, 0);
  for (;;) {
    const std::size_t nearest = *std::min_element(next, next + first_.size());
    if (nearest == text.size()) return;
    at = match(text, nearest, out) ? out.back().end : nearest + 1;
    for (std::size_t k = 0; k < first_.size(); ++k)
      if (next[k] < at) find(k, at);
  }
}

}  // namespace toktier::cache
