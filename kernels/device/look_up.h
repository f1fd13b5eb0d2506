// From the bytes of a piece to its token: tt_find_piece of kernels/shared, with the same tables and the same answers, but with
// loads of 16 bytes. A thread that reads bytes one by one keeps the memory pipeline busy with nothing; a line of the table, with
// its 16 slots, is four loads here.
#pragma once
#include "abi.h"
#include "device.h"
#include "text.h"

TT_DEV TtPieceKey tt_key_at(const TtText16& first, tt_u32 length) {
  const tt_u32 kept = length < TT_KEY_BYTES ? length : TT_KEY_BYTES;
  const tt_u64 stated = length < 255 ? length : 255;
  return {tt_keep_bytes(first.low, kept), (kept > 8 ? tt_keep_bytes(first.high, kept - 8) : 0) | stated << 56};
}

// tt_hash_bytes.
TT_DEV tt_u64 tt_hash_text(const tt_u8* text, tt_u32 at, tt_u32 length) {
  tt_u64 h = TT_HASH_A * (static_cast<tt_u64>(length) + 1);
  for (tt_u32 i = 0; i < length; i += 16) {
    const TtText16 t = tt_read16(text, at + i);
    h = tt_hash_mix((h ^ tt_keep_bytes(t.low, length - i)) * TT_HASH_A);
    if (length - i > 8) h = tt_hash_mix((h ^ tt_keep_bytes(t.high, length - i - 8)) * TT_HASH_A);
  }
  return tt_hash_mix(h);
}

TT_DEV tt_u32 tt_find_text(const TtPieceTable& t, const tt_u8* text, tt_u32 at, tt_u32 length) {
  const TtPieceKey key = tt_key_at(tt_read16(text, at), length);
  const tt_u64 hash = length <= TT_KEY_BYTES ? tt_hash_key(key) : tt_hash_text(text, at, length);
  if (t.lines == nullptr) return tt_find_wide_piece(t, hash, key, text + at, length);
  const tt_u32 mark = tt_piece_mark(hash);
  for (tt_u32 line = tt_piece_line(hash, t.n_lines);; line = line + 1 == t.n_lines ? 0 : line + 1) {
    const tt_u32* const slots = t.lines + static_cast<tt_u64>(line) * TT_LINE_SLOTS;
    for (tt_u32 first = 0; first < TT_LINE_SLOTS; first += 4) {
      const tt_bytes16 four = tt_load16(reinterpret_cast<const tt_u8*>(slots + first));
      for (tt_u32 k = 0; k < 4; ++k) {
        const tt_u32 slot = four.word[k], id = slot & TT_SLOT_IDS;
        if (slot == TT_NONE) return TT_NONE;
        if (slot >> TT_SLOT_ID_BITS == mark && tt_piece_reads(t, id, key, text + at, length)) return id;
      }
    }
  }
}

// The token that a whole piece is, or that merges make of a part of one; TT_NONE: merge it. A part may not take an entry that
// only ignore_merges reaches. One byte is its symbol: no two tokens read the same, so the table would say the same.
TT_DEV tt_u32 tt_look_up(const TtGpuTables& t, const tt_u8* text, tt_u32 at, tt_u32 length, bool whole) {
  if (length == 1) return t.byte_symbol[text[at]];
  if (length > t.max_piece) return TT_NONE;
  const tt_u32 id = tt_find_text(t.pieces, text, at, length);
  return id != TT_NONE && (whole || (t.token_flags[id] & TT_TOKEN_REACHABLE) != 0) ? id : TT_NONE;
}
