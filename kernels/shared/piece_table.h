// From bytes to an id: the token that reads exactly these bytes. The compact form is made of cache lines of 16 slots, a slot
// being 12 bits of the hash and the id: a look-up reads one line, and for whole pieces one record of 16 bytes that holds a
// token's first 15 bytes and its length, which decides for tokens of up to 15 bytes. A record is the key that word caches use,
// so that it may be compared as it is. The wide form, open addressing over ids, is for vocabularies beyond 2^20 ids.
// Built by native/compile/string_tables.cpp.
#pragma once
#include "hash.h"

constexpr tt_u32 TT_LINE_SLOTS = 16;
constexpr tt_u32 TT_SLOT_ID_BITS = 20;
constexpr tt_u32 TT_SLOT_IDS = (1u << TT_SLOT_ID_BITS) - 1;  // ids below this; an empty slot is TT_NONE
constexpr tt_u32 TT_KEY_BYTES = 15;

struct TtPieceTable {
  const tt_u32* lines;       // PLIN or VLIN, [n_lines * 16]; null: the wide form
  tt_u32 n_lines;
  const tt_u64* keys;        // PKEY, two words by id; null: none
  const tt_u32* slots;       // PHSH or VHSH, [capacity]: id or TT_NONE; at least one is empty
  tt_u32 mask;
  const tt_u32* raw_offset;  // RAWO or STRO
  const tt_u8* raw;          // RAWB or STRB
};

// The first 15 bytes, zero-filled, and in the last byte the length, 255 standing for anything beyond 254.
struct TtPieceKey {
  tt_u64 low, high;
};

TT_HD TtPieceKey tt_piece_key(const tt_u8* bytes, tt_u32 length) {
  const tt_u32 first = length < 8 ? length : 8, kept = length < TT_KEY_BYTES ? length : TT_KEY_BYTES;
  const tt_u64 stated = length < 255 ? length : 255;
  return {tt_load_tail(bytes, first), tt_load_tail(bytes + first, kept - first) | stated << 56};
}

// Two multiplications, and a function of the key alone for all that a key holds whole.
TT_HD tt_u64 tt_hash_key(const TtPieceKey& key) {
  tt_u64 h = key.low * TT_HASH_A;
  h = (h ^ h >> 32 ^ key.high) * TT_HASH_B;
  return h ^ h >> 32;
}
TT_HD tt_u64 tt_hash_piece(const TtPieceKey& key, const tt_u8* bytes, tt_u32 length) {
  return length <= TT_KEY_BYTES ? tt_hash_key(key) : tt_hash_bytes(bytes, length);
}
TT_HD tt_u32 tt_piece_line(tt_u64 hash, tt_u32 n_lines) {
  return static_cast<tt_u32>((hash >> 32) * n_lines >> 32);
}
TT_HD tt_u32 tt_piece_mark(tt_u64 hash) { return static_cast<tt_u32>(hash) & 0xFFF; }

TT_HD bool tt_piece_reads(const TtPieceTable& t, tt_u32 id, const TtPieceKey& key, const tt_u8* bytes, tt_u32 length) {
  tt_u32 i = 0;
  if (t.keys != nullptr) {
    if (t.keys[2 * static_cast<tt_u64>(id)] != key.low || t.keys[2 * static_cast<tt_u64>(id) + 1] != key.high) return false;
    if (length <= TT_KEY_BYTES) return true;
    i = TT_KEY_BYTES;
  }
  const tt_u32 begin = t.raw_offset[id];
  if (t.raw_offset[id + 1] - begin != length) return false;
  while (i < length && t.raw[begin + i] == bytes[i]) ++i;
  return i == length;
}

TT_HD tt_u32 tt_find_wide_piece(const TtPieceTable& t, tt_u64 hash, const TtPieceKey& key, const tt_u8* bytes, tt_u32 length) {
  for (tt_u32 slot = static_cast<tt_u32>(hash) & t.mask;; slot = (slot + 1) & t.mask) {
    const tt_u32 id = t.slots[slot];
    if (id == TT_NONE || tt_piece_reads(t, id, key, bytes, length)) return id;
  }
}

// Id of the entry that reads exactly these bytes, or TT_NONE. A line is filled from its first slot on, and goes on in the next
// one when it is full; at least one slot of all is empty.
TT_HD tt_u32 tt_find_piece(const TtPieceTable& t, const tt_u8* bytes, tt_u32 length) {
  const TtPieceKey key = tt_piece_key(bytes, length);
  const tt_u64 hash = tt_hash_piece(key, bytes, length);
  if (t.lines == nullptr) return tt_find_wide_piece(t, hash, key, bytes, length);
  const tt_u32 mark = tt_piece_mark(hash);
  for (tt_u32 line = tt_piece_line(hash, t.n_lines);; line = line + 1 == t.n_lines ? 0 : line + 1) {
    const tt_u32* slots = t.lines + static_cast<tt_u64>(line) * TT_LINE_SLOTS;
    for (tt_u32 i = 0; i < TT_LINE_SLOTS; ++i) {
      if (slots[i] == TT_NONE) return TT_NONE;
      const tt_u32 id = slots[i] & TT_SLOT_IDS;
      if (slots[i] >> TT_SLOT_ID_BITS == mark && tt_piece_reads(t, id, key, bytes, length)) return id;
    }
  }
}
