// Searching masks of one bit a byte (or a place) from a place on, a word at a time. Not here: searches that a whole warp makes
// together (spans.h).
#pragma once
#include "device.h"

TT_DEV tt_u32 tt_bits_below(tt_u32 bit) { return bit < 32 ? (1u << bit) - 1 : TT_ALL_LANES; }
TT_DEV tt_u32 tt_bits_above(tt_u32 bit) { return ~((2u << bit) - 1); }  // bit < 32

// The first set bit at or after `from` in the words before `end_word`, of which word_at(w) gives each; or TT_NONE.
template <typename WordAt>
TT_DEV tt_u32 tt_next_bit(tt_u32 from, tt_u32 end_word, WordAt&& word_at) {
  tt_u32 word = from >> 5;
  if (word >= end_word) return TT_NONE;
  tt_u32 bits = word_at(word) & ~tt_bits_below(from & 31);
  while (bits == 0) {
    if (++word == end_word) return TT_NONE;
    bits = word_at(word);
  }
  return word << 5 | tt_lowest_bit(bits);
}

TT_DEV tt_u32 tt_next_bit(const tt_u32* words, tt_u32 from, tt_u32 end_word) {
  return tt_next_bit(from, end_word, [&](tt_u32 word) { return words[word]; });
}

// The last set bit before `at`, or TT_NONE.
TT_DEV tt_u32 tt_previous_bit(const tt_u32* words, tt_u32 at) {
  tt_u32 word = at >> 5;
  tt_u32 bits = words[word] & tt_bits_below(at & 31);
  while (bits == 0) {
    if (word-- == 0) return TT_NONE;
    bits = words[word];
  }
  return word << 5 | tt_highest_bit(bits);
}
