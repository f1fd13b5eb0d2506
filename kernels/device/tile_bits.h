// The set bits of the 128 words of a mask that are a tile's, as a list that the threads of the block share evenly: words have
// from no bit to 32, and a thread for each word would wait for the fullest.
#pragma once
#include "look_back.h"
#include "text_word.h"

struct TtSum {
  TT_DEV tt_u32 operator()(tt_u32 a, tt_u32 b) const { return a + b; }
};

// Word of a mask without the bits at and behind byte n; words behind the last are empty.
TT_DEV tt_u32 tt_bits_of_word(const tt_u32* mask, const TtGpuParams& p, tt_u32 word) {
  return word < p.n_words ? mask[word] & tt_word_mask(p.n, word) : 0;
}

// Writes the places in the tile of this thread's bits, `before` being how many bits the lower threads have.
TT_DEV void tt_list_bits(tt_u32 bits, tt_u32 before, tt_u16 (&places)[TT_TILE_BYTES]) {
  for (; bits != 0; bits &= bits - 1)
    places[before++] = static_cast<tt_u16>(tt_thread() * TT_WORD_BYTES + tt_lowest_bit(bits));
}
