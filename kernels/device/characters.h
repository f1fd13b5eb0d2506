// tt_characters: code points before each word, so that any byte's code point is one count of bits away. Only where offsets are
// wanted.
#pragma once
#include "tile_bits.h"

// Bits of the bytes of a word that begin a code point. The word has text.
TT_DEV tt_u32 tt_lead_bits(const TtGpuParams& p, tt_u32 word) {
  const tt_u8* const at = p.buffers.text + static_cast<tt_u64>(word) * TT_WORD_BYTES;
  tt_u32 continues = 0;
  for (tt_u32 half = 0; half < 2; ++half) {
    const tt_bytes16 bytes = tt_load16(at + 16 * half);
    for (tt_u32 k = 0; k < 4; ++k)
      continues |= tt_high_bits(bytes.word[k] & ~(bytes.word[k] << 1)) << (16 * half + 4 * k);
  }
  return ~continues & tt_word_mask(p.n, word);
}

TT_KERNEL(TT_TILE_THREADS) tt_characters(TtGpuParams p) {
  TT_SHARED TtScan scan;
  const TtGpuBuffers& b = p.buffers;
  const tt_u32 tile = tt_take_ticket(b.control + TT_CONTROL_CHARACTERS, scan);
  if (tile >= p.n_tiles) return;
  const tt_u32 word = tile * TT_TILE_THREADS + tt_thread();
  const tt_u32 count = word < p.n_words ? tt_count_bits(tt_lead_bits(p, word)) : 0;
  const tt_u32 before = tt_scan_tiles(TtSum{}, count, b.look_characters, tile, scan);
  if (word < p.n_words) b.characters[word] = before;
  if (word + 1 == p.n_words) b.characters[p.n_words] = before + count;
}
