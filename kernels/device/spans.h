// tt_spans: pieces over 32 bytes, a warp each, cut where no merge joins; each span is a token by look-up, or queued by length.
//
// Why a cut changes nothing. A merge joins two symbols that stand side by side, so its product holds the last byte of the one
// and the first byte of the other side by side; JBYT is clear for two bytes that no live product holds so, hence no merge ever
// reaches across such a place, and the merges of a part go in the same order as in the whole. The piece itself was looked up
// before and is no entry, so its ids come from merges alone, and a part may take only those entries that merges make.
#pragma once
#include "documents.h"
#include "look_up.h"
#include "queue.h"

// Where the piece that begins at `begin` ends; 1,024 bytes a step.
TT_DEV tt_u32 tt_end_of_piece(const TtGpuParams& p, tt_u32 begin) {
  const tt_u32 first = (begin + 1) / TT_WORD_BYTES, last = p.n / TT_WORD_BYTES;
  for (tt_u32 from = first; from <= last; from += TT_LANES) {
    const tt_u32 word = from + tt_lane();
    tt_u32 bits = word <= last ? p.buffers.bounds[word] : 0;
    if (word == first) bits &= TT_ALL_LANES << ((begin + 1) & 31);
    const tt_u32 lanes = tt_ballot(TT_ALL_LANES, bits != 0);
    if (lanes == 0) continue;
    const tt_u32 lane = tt_lowest_bit(lanes);
    const tt_u32 end = (from + lane) * TT_WORD_BYTES + tt_lowest_bit(tt_shuffle(TT_ALL_LANES, bits, lane));
    return end < p.n ? end : p.n;
  }
  return p.n;
}

TT_DEV void tt_put_token(const TtGpuBuffers& b, tt_u32 at, tt_u32 id) {
  b.token_id[at] = id;
  tt_mark_tokens(b.tokens, at, 1);
}

// A span of one lane: its token, or a place in a queue. `whole`: it is the piece, of which it is known that it is no entry.
TT_DEV void tt_make_span(const TtGpuParams& p, bool has_span, tt_u32 begin, tt_u32 bytes, bool whole) {
  const tt_u32 id = has_span && !whole ? tt_look_up(p.tables, p.buffers.text, begin, bytes, false) : TT_NONE;
  if (id != TT_NONE) tt_put_token(p.buffers, begin, id);
  const bool left = has_span && id == TT_NONE;
  tt_push(p.buffers, TT_QUEUE_THREAD, left && bytes <= TT_THREAD_PIECE, begin, bytes);
  tt_push(p.buffers, TT_QUEUE_WARP, left && bytes > TT_THREAD_PIECE && bytes <= TT_WARP_PIECE, begin, bytes);
  tt_push(p.buffers, TT_QUEUE_BLOCK, left && bytes > TT_WARP_PIECE && bytes <= TT_BLOCK_PIECE, begin, bytes);
  if (left && bytes > TT_BLOCK_PIECE) tt_leave_document_of(p, begin, TT_LEFT_GIANT);
}

// Cuts text[begin, end), 32 places a step; a span belongs to the lane that looks at its end.
TT_DEV void tt_cut_piece(const TtGpuParams& p, tt_u32 begin, tt_u32 end) {
  const tt_u8* const join_bytes = p.tables.join_bytes;
  const tt_u32 lane = tt_lane();
  tt_u32 open = begin;  // where the span begins whose end is not found yet
  for (tt_u32 first = join_bytes == nullptr ? end : begin + 1; first <= end; first += TT_LANES) {
    const tt_u32 at = first + lane;
    const bool is_cut = at < end && !tt_bytes_join(join_bytes, p.buffers.text[at - 1], p.buffers.text[at]);
    const tt_u32 ends = tt_ballot(TT_ALL_LANES, is_cut || at == end);
    if (ends == 0) {
      if (first + TT_LANES - open <= TT_BLOCK_PIECE) continue;
      if (lane == 0) tt_leave_document_of(p, open, TT_LEFT_GIANT);  // the rest is not looked at: the CPU has it all
      return;
    }
    const tt_u32 lower = ends & ((1u << lane) - 1), span = lower == 0 ? open : first + tt_highest_bit(lower);
    tt_make_span(p, (ends >> lane & 1) != 0, span, at - span, span == begin && at == end);
    open = first + tt_highest_bit(ends);
  }
}

TT_KERNEL(TT_TILE_THREADS) tt_spans(TtGpuParams p) {
  const tt_u32 count = tt_queued(p.buffers, TT_QUEUE_LONG);
  for (tt_u32 k; (k = tt_take(p.buffers, TT_QUEUE_LONG, 1)) < count;) {
    const tt_u64 item = p.buffers.queue[TT_QUEUE_LONG][k];
    const tt_u32 begin = tt_item_begin(item), bytes = tt_item_bytes(item);
    if (bytes != 0) {
      tt_cut_piece(p, begin, begin + bytes);
      continue;
    }
    const tt_u32 end = tt_end_of_piece(p, begin);
    const tt_u32 id = tt_look_up(p.tables, p.buffers.text, begin, end - begin, true);
    if (id == TT_NONE)
      tt_cut_piece(p, begin, end);
    else if (tt_lane() == 0)
      tt_put_token(p.buffers, begin, id);
  }
}
