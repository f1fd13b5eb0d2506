// The junction of each live rule, as the characters that may stand on either side of it.
#include "compile/join_filter.h"

#include <algorithm>

#include "compile/string_tables.h"
#include "shared/join_filter.h"

namespace toktier::compile {

namespace {

struct Key {
  std::uint32_t left, right;
};

// Bits per key, and the largest set that is worth its place in a cache: 64 KiB for whole characters, 4 KiB for fragments, which
// are looked up three times.
constexpr std::uint32_t kLeastBits = 10, kPairBits = 19, kPairSparse = 16, kFragmentBits = 15, kFragmentSparse = 128;

std::vector<std::uint32_t> bit_set(const std::vector<Key>& keys, std::uint32_t sparse, std::uint32_t most) {
  std::uint32_t log = kLeastBits;
  while (log < most && (std::uint64_t{1} << log) < sparse * keys.size()) ++log;
  std::vector<std::uint32_t> set((std::size_t{1} << log) / 32, 0);
  for (const Key& key : keys) {
    const std::uint32_t bit = tt_join_hash(key.left, key.right) >> (32 - log);
    set[bit >> 5] |= 1u << (bit & 31);
  }
  return set;
}

bool is_continuation(char c) { return tt_is_continuation(static_cast<tt_u8>(c)); }

// Length of the character that a lead byte begins; 0 for a byte that begins none.
std::uint32_t length_of(char c) {
  const auto lead = static_cast<tt_u8>(c);
  if (is_continuation(c) || lead >= 0xF5 || lead == 0xC0 || lead == 0xC1) return 0;
  return tt_utf8_length(lead);
}

std::uint32_t decode(std::string_view s) {
  std::uint32_t length;
  return tt_utf8_next(reinterpret_cast<const tt_u8*>(s.data()), length);
}

}  // namespace

JoinFilter build_join_filter(const std::vector<std::uint32_t>& rules, const Blob& raw,
                             const std::vector<std::uint32_t>& taken_whole) {
  std::vector<Key> whole, fragments;
  for (std::size_t r = 0; r < rules.size(); r += 3) {
    const std::string_view left = string_at(raw, rules[r]), right = string_at(raw, rules[r + 1]);
    if (left.empty() || right.empty()) return {};  // a side that is said to read nothing may stand anywhere
    const std::uint32_t needed = length_of(right[0]);
    if (needed == 0) continue;  // inside a character, or no UTF-8
    const std::string_view first = right.substr(0, needed);
    if (!std::all_of(first.begin() + 1, first.end(), is_continuation)) continue;
    std::size_t tail = 0;
    while (tail < left.size() && is_continuation(left[left.size() - 1 - tail])) ++tail;
    const bool left_whole = tail != left.size(), right_whole = first.size() == needed;
    std::uint32_t a, b;
    if (left_whole) {
      const std::string_view last = left.substr(left.size() - 1 - tail);
      if (length_of(last[0]) != last.size()) continue;
      a = decode(last);
    } else {
      if (tail > 3) continue;
      a = TT_JOIN_FRAGMENT | static_cast<tt_u8>(left.back());
    }
    b = right_whole ? decode(first) : TT_JOIN_FRAGMENT | static_cast<tt_u8>(first[0]);
    (left_whole && right_whole ? whole : fragments).push_back({a, b});
  }
  for (const std::uint32_t id : taken_whole) {
    const std::string_view text = string_at(raw, id);
    for (std::size_t at = 0, length, before = 0; at < text.size(); before = at, at += length) {
      length = length_of(text[at]);
      const std::string_view character = text.substr(at, length);
      if (length == 0 || character.size() != length || !std::all_of(character.begin() + 1, character.end(), is_continuation))
        break;  // no UTF-8: no piece reads it
      if (at > 0) whole.push_back({decode(text.substr(before)), decode(character)});
    }
  }
  JoinFilter out;
  out.pairs = bit_set(whole, kPairSparse, kPairBits);
  if (!fragments.empty()) out.fragments = bit_set(fragments, kFragmentSparse, kFragmentBits);
  return out;
}

}  // namespace toktier::compile
