// Matching by a walk down the trie from every candidate start. A candidate needs its first two bytes to begin a token, so
// ordinary text is passed by table look-ups alone; a walk is never longer than the longest added token.
#include "added_tokens.h"

#include <algorithm>
#include <bit>

#include "counters.h"
#include "faults.h"

namespace toktier {

// The first place at i or behind it where a token may begin, by its first two bytes; size_ where there is none. Never asked for
// a place before an earlier one.
std::uint32_t AddedTokenScan::candidate(std::uint32_t i) {
  for (;;) {
    if (i < block_end_) {
      places_ &= ~std::uint64_t{0} << (i - block_);
      for (; places_ != 0; places_ &= places_ - 1) {
        const std::uint32_t at = block_ + static_cast<std::uint32_t>(std::countr_zero(places_));
        const std::uint32_t second = at + 1 < size_ ? text_[at + 1] : TT_NONE;
        if (second == TT_NONE || (matcher_.two_bytes[std::uint32_t{text_[at]} << 2 | second >> 6] >> (second & 63) & 1) != 0)
          return at;
      }
      i = block_end_;
    }
    if (i >= size_) return size_;
    i = block_ = lanes_.find_starts(matcher_.starts, text_, i, size_, places_);
    block_end_ = size_ - i > 64 ? i + 64 : size_;
  }
}

bool AddedTokenScan::find(AddedMatch& match) {
  const Matcher& m = matcher_;
  for (std::uint32_t i = at_; (i = candidate(i)) < size_; ++i) {
    std::uint32_t node = m.root_child[text_[i]], end = i + 1, best = TT_NONE;
    if (node == TT_NONE) continue;
    for (;;) {
      const bool seen = !(TOKTIER_FAULT(added_at_end) && end == size_);
      if (m.token[node] != TT_NONE && seen && (end == size_ || !tt_is_continuation(text_[end]))) {
        best = m.token[node];
        match = {i, end, best};
      }
      if (end == size_) break;
      const std::uint8_t* first = m.edge_byte.data + m.first_edge[node];
      const std::uint8_t* last = m.edge_byte.data + m.first_edge[node + 1];
      const std::uint8_t* edge = last - first == 1 ? first : std::lower_bound(first, last, text_[end]);
      if (edge == last || *edge != text_[end]) break;
      node = m.edge_child[static_cast<std::uint64_t>(edge - m.edge_byte.data)];
      ++end;
    }
    TOKTIER_COUNT(matcher_steps, end - i);
    if (best != TT_NONE) return true;
    if (TOKTIER_FAULT(added_restart)) i = end;
  }
  return false;
}

bool AddedTokenScan::is_word_at(std::uint32_t position) const {
  std::uint32_t length;
  return position < size_ && (program_.char_bits(tt_utf8_next(text_ + position, length)) & TT_CHAR_WORD) != 0;
}

bool AddedTokenScan::is_word_before(std::uint32_t position) const {
  std::uint32_t length;
  return position > 0 && (program_.char_bits(tt_utf8_previous(text_ + position, length)) & TT_CHAR_WORD) != 0;
}

// Start of the white space that ends at `position`, but not before the end of the previous match.
std::uint32_t AddedTokenScan::space_begin(std::uint32_t position) const {
  while (position > kept_end_) {
    std::uint32_t length;
    if ((program_.char_bits(tt_utf8_previous(text_ + position, length)) & TT_CHAR_SPACE) == 0) break;
    position -= length;
    TOKTIER_COUNT(matcher_steps, 1);
  }
  return std::max(position, kept_end_);
}

std::uint32_t AddedTokenScan::space_end(std::uint32_t position) {
  if (space_from_ <= position && position <= space_to_) return space_to_;
  space_from_ = position;
  while (position < size_) {
    std::uint32_t length;
    if ((program_.char_bits(tt_utf8_next(text_ + position, length)) & TT_CHAR_SPACE) == 0) break;
    position += length;
    TOKTIER_COUNT(matcher_steps, 1);
  }
  space_to_ = position;
  return position;
}

bool AddedTokenScan::next(AddedMatch& match) {
  if (matcher_.empty()) return false;
  while (find(match)) {
    at_ = match.end;  // a match that is passed over consumes its range too
    std::uint32_t flags = program_.added[match.token].flags;
    if (TOKTIER_FAULT(added_strips_swapped))
      flags = (flags & ~6u) | (flags & TT_ADDED_LSTRIP) << 1 | (flags & TT_ADDED_RSTRIP) >> 1;
    if (plain_ && (flags & TT_ADDED_SPECIAL) != 0 && !TOKTIER_FAULT(added_special_in_plain)) continue;
    if ((flags & TT_ADDED_SINGLE_WORD) != 0 &&
        (is_word_before(match.begin) || (is_word_at(match.end) && !TOKTIER_FAULT(added_word_at_end))))
      continue;
    if ((flags & TT_ADDED_LSTRIP) != 0) match.begin = space_begin(match.begin);
    if ((flags & TT_ADDED_RSTRIP) != 0) match.end = space_end(match.end);
    if (match.begin > match.end)
      throw SettingsError{"an added token of white space, id " + std::to_string(program_.added[match.token].id) +
                          ", lies inside the white space that the token before it took in; the reference fails on such a text"};
    kept_end_ = match.end;
    if (match.begin == match.end) continue;  // nothing of it is left: the reference drops empty pieces, tokens too
    return true;
  }
  return false;
}

}  // namespace toktier
