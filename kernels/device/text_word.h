// A word of text, 32 bytes, as one thread has it: in a row of shared memory of its own, with masks over its bytes. The four bytes
// behind stand in the row too, because a character that begins in the word may end there; so no thread needs the row of another,
// and rows of nine banks let the threads of a warp read without conflicts.
#pragma once
#include "abi.h"
#include "boundary.h"
#include "device.h"
#include "utf8.h"

constexpr tt_u32 TT_ROW_WORDS = TT_WORD_BYTES / 4 + 1;
constexpr tt_u32 TT_ROW_BYTES = 4 * TT_ROW_WORDS;

// Bits of the bytes of a row, those behind the word included.
struct TtRowBits {
  tt_u64 high;       // not ASCII
  tt_u64 continues;  // 10xxxxxx
};

// The highest bit of each byte, as four bits.
TT_DEV tt_u32 tt_high_bits(tt_u32 bytes) { return ((bytes >> 7 & 0x01010101u) * 0x10204080u) >> 28; }

TT_DEV void tt_add_bits(TtRowBits& bits, tt_u32 bytes, tt_u32 at) {
  bits.high |= static_cast<tt_u64>(tt_high_bits(bytes)) << at;
  bits.continues |= static_cast<tt_u64>(tt_high_bits(bytes & ~(bytes << 1))) << at;
}

// Word `word` of the text, which has one: reads up to 48 bytes from its begin, so no further than the padding.
TT_DEV TtRowBits tt_load_row(const tt_u8* text, tt_u32 word, tt_u32* row) {
  const tt_u8* const at = text + static_cast<tt_u64>(word) * TT_WORD_BYTES;
  const tt_bytes16 low = tt_load16(at), high = tt_load16(at + 16);
  const tt_u32 behind = tt_load16(at + 32).word[0];
  TtRowBits bits{0, 0};
  for (tt_u32 i = 0; i < 4; ++i) {
    row[i] = low.word[i];
    row[i + 4] = high.word[i];
    tt_add_bits(bits, low.word[i], 4 * i);
    tt_add_bits(bits, high.word[i], 4 * i + 16);
  }
  row[8] = behind;
  tt_add_bits(bits, behind, 32);
  return bits;
}

// Bits of the bytes of a word that are text.
TT_DEV tt_u32 tt_word_mask(tt_u32 n, tt_u32 word) {
  const tt_u32 left = n - word * TT_WORD_BYTES;
  return left >= TT_WORD_BYTES ? TT_ALL_LANES : (1u << left) - 1;
}

// Bits of a mask that has a word behind the last one, for the bytes of a row.
TT_DEV tt_u64 tt_row_mask(const tt_u32* mask, tt_u32 word) {
  return mask[word] | static_cast<tt_u64>(mask[word + 1]) << 32;
}

// Classes of ASCII, in shared memory: the block fills it, a barrier comes before it is read.
TT_DEV void tt_fill_ascii(const TtBoundary& boundary, tt_u8* ascii) {
  for (tt_u32 cp = tt_thread(); cp < 128; cp += tt_threads()) ascii[cp] = static_cast<tt_u8>(tt_class(boundary, cp));
}

// Class of the character whose first byte this is. Bytes that are not UTF-8 have some class: the document is flagged.
TT_DEV tt_u32 tt_class_at(const TtBoundary& boundary, const tt_u8* ascii, const tt_u8* at) {
  if (*at < 0x80) return ascii[*at];
  tt_u32 length;
  const tt_u32 cp = tt_utf8_next(at, length);
  return tt_class(boundary, cp < 0x110000 ? cp : 0);
}
