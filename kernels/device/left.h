// The left automaton over the whole chunk, forwards, and with it every boundary: the matrix says of the state before a character
// and the right state at it whether a piece begins there. Right states inside a word are found from the one that tt_right wrote.
#pragma once
#include "look_back.h"
#include "monoid.h"
#include "text_word.h"

// A word between the two halves of the kernel. By byte at which a character begins: its class, in the row where its text was,
// and the right state at it.
struct TtLeftWord {
  tt_u8* row;
  tt_u8* right;
  tt_u32 starts, edges;
};

// Fills the word in; returns the left elements of its characters, composed.
TT_DEV tt_u32 tt_left_element(const TtGpuParams& p, const tt_u8* ascii, tt_u32 word, tt_u32* row_words, TtLeftWord& w) {
  const TtBoundary& boundary = p.tables.boundary;
  const TtRowBits bits = tt_load_row(p.buffers.text, word, row_words);
  const tt_u64 edges = tt_row_mask(p.buffers.edges, word);
  w.row = reinterpret_cast<tt_u8*>(row_words);
  w.edges = static_cast<tt_u32>(edges);
  w.starts = ~static_cast<tt_u32>(bits.continues) & tt_word_mask(p.n, word) & ~p.buffers.covered[word];
  tt_u32 state = p.buffers.right_state[word];
  for (tt_u32 starts = w.starts; starts != 0;) {
    const tt_u32 at = tt_highest_bit(starts);
    starts ^= 1u << at;
    const tt_u32 length = tt_utf8_length(w.row[at]), cls = tt_class_at(boundary, ascii, w.row + at);
    state = tt_right_step(boundary, (edges >> (at + length) & 1) != 0 ? boundary.right_end : state, cls);
    w.row[at] = static_cast<tt_u8>(cls);
    w.right[at] = static_cast<tt_u8>(state);
  }
  const TtMonoid& monoid = p.tables.left;
  const TtComposition compose = tt_composition(monoid);
  tt_u32 element = 0;
  for (tt_u32 starts = w.starts; starts != 0; starts &= starts - 1) {
    const tt_u32 at = tt_lowest_bit(starts), cls = w.row[at];
    element = compose(element, (w.edges >> at & 1) != 0 ? monoid.of_first[cls] : monoid.of_class[cls]);
  }
  return element;
}

// Boundaries of a word that is entered in this left state. At an edge the matrix only says whether the piece is dropped.
TT_DEV void tt_write_bounds(const TtGpuParams& p, tt_u32 word, const TtLeftWord& w, tt_u32 state) {
  const TtBoundary& boundary = p.tables.boundary;
  tt_u32 bounds = w.edges, dropped = 0;
  for (tt_u32 starts = w.starts; starts != 0; starts &= starts - 1) {
    const tt_u32 at = tt_lowest_bit(starts);
    if ((w.edges >> at & 1) != 0) state = boundary.left_start;
    const tt_u32 value = tt_boundary_value(boundary, state, w.right[at]);
    bounds |= static_cast<tt_u32>(value != TT_NO_BOUNDARY) << at;
    dropped |= static_cast<tt_u32>(value == TT_BOUNDARY_DROPPED) << at;
    state = tt_left_step(boundary, state, w.row[at]);
  }
  p.buffers.bounds[word] = bounds;
  p.buffers.dropped[word] = dropped;
  // The end of the text, where it is a byte of no word.
  if (word + 1 == p.n_words) p.buffers.bounds[p.n_words] = p.buffers.edges[p.n_words];
}

TT_KERNEL(TT_TILE_THREADS) tt_left(TtGpuParams p) {
  TT_SHARED tt_u32 rows[TT_TILE_THREADS][TT_ROW_WORDS];
  TT_SHARED tt_u32 rights[TT_TILE_THREADS][TT_ROW_WORDS];
  TT_SHARED tt_u8 ascii[128];
  TT_SHARED TtScan scan;
  tt_fill_ascii(p.tables.boundary, ascii);
  const tt_u32 ticket = tt_take_ticket(p.buffers.control + TT_CONTROL_LEFT, scan);
  if (ticket >= p.n_tiles) return;
  const tt_u32 word = ticket * TT_TILE_THREADS + tt_thread();
  TtLeftWord w{nullptr, reinterpret_cast<tt_u8*>(rights[tt_thread()]), 0, 0};
  const bool some = word < p.n_words;
  const tt_u32 element = some ? tt_left_element(p, ascii, word, rows[tt_thread()], w) : 0;
  const tt_u32 before = tt_scan_tiles(tt_composition(p.tables.left), element, p.buffers.look_left, ticket, scan);
  if (some) tt_write_bounds(p, word, w, p.tables.left.state[before]);
}
