// The right automaton over the whole chunk, backwards: for each word the state behind the last character that begins in it, from
// which tt_left finds the states inside the word. Threads and tiles are in the order of reading, the last word first.
#pragma once
#include "look_back.h"
#include "monoid.h"
#include "text_word.h"

// Right elements of the characters that begin in a word, composed. A character is the first of its segment, in the order of
// reading, where an edge is right behind it.
TT_DEV tt_u32 tt_right_element(const TtGpuParams& p, const tt_u8* ascii, tt_u32 word, tt_u32* row_words) {
  const TtMonoid& monoid = p.tables.right;
  const TtComposition compose = tt_composition(monoid);
  const TtRowBits bits = tt_load_row(p.buffers.text, word, row_words);
  const tt_u8* const row = reinterpret_cast<const tt_u8*>(row_words);
  const tt_u64 edges = tt_row_mask(p.buffers.edges, word);
  tt_u32 starts = ~static_cast<tt_u32>(bits.continues) & tt_word_mask(p.n, word) & ~p.buffers.covered[word];
  tt_u32 element = 0;
  while (starts != 0) {
    const tt_u32 at = tt_highest_bit(starts);
    starts ^= 1u << at;
    const tt_u32 cls = tt_class_at(p.tables.boundary, ascii, row + at);
    const bool first = (edges >> (at + tt_utf8_length(row[at])) & 1) != 0;
    element = compose(element, first ? monoid.of_first[cls] : monoid.of_class[cls]);
  }
  return element;
}

TT_KERNEL(TT_TILE_THREADS) tt_right(TtGpuParams p) {
  TT_SHARED tt_u32 rows[TT_TILE_THREADS][TT_ROW_WORDS];
  TT_SHARED tt_u8 ascii[128];
  TT_SHARED TtScan scan;
  tt_fill_ascii(p.tables.boundary, ascii);
  const tt_u32 ticket = tt_take_ticket(p.buffers.control + TT_CONTROL_RIGHT, scan);
  if (ticket >= p.n_tiles) return;
  const tt_u32 word = (p.n_tiles - 1 - ticket) * TT_TILE_THREADS + (TT_TILE_THREADS - 1 - tt_thread());
  const bool some = word < p.n_words;
  const tt_u32 element = some ? tt_right_element(p, ascii, word, rows[tt_thread()]) : 0;
  const tt_u32 before = tt_scan_tiles(tt_composition(p.tables.right), element, p.buffers.look_right, ticket, scan);
  if (some) p.buffers.right_state[word] = p.tables.right.state[before];
}
