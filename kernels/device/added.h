// Added tokens at one place of the text. Each place is looked at on its own, so what a match means cannot depend on earlier
// matches: a match in which another one begins, of either pass, leaves the document to the CPU, and where there is none, the
// matches are exactly those of native/engine/added_tokens.cpp, which takes the leftmost and goes on behind it.
// A walk is never longer than the longest token, nor does it leave the document.
#pragma once
#include "documents.h"
#include "utf8.h"

// End of the longest token of the trie that begins at `begin`, or 0; `token` receives its index in `added`.
TT_DEV tt_u32 tt_match_added(const TtAddedTrie& trie, const tt_u8* text, tt_u32 begin, tt_u32 end, tt_u32& token) {
  tt_u32 node = 0, matched = 0;
  for (tt_u32 at = begin; at < end;) {
    const tt_u8 byte = text[at];
    tt_u32 low = trie.first_edge[node];
    const tt_u32 last = trie.first_edge[node + 1];
    for (tt_u32 high = last; low < high;) {
      const tt_u32 middle = low + (high - low) / 2;
      if (trie.edge_byte[middle] < byte)
        low = middle + 1;
      else
        high = middle;
    }
    if (low == last || trie.edge_byte[low] != byte) break;
    node = trie.edge_child[low];
    ++at;
    if (trie.token[node] != TT_NONE && (at == end || !tt_is_continuation(text[at]))) {
      matched = at;
      token = trie.token[node];
    }
  }
  return matched;
}

// The byte behind may be of another document, or padding: where a token is one byte alone, every second byte is marked.
TT_DEV bool tt_may_begin_added(const TtAddedTrie& trie, tt_u8 first, tt_u8 second) {
  return trie.two_bytes != nullptr && (trie.two_bytes[first << 3 | second >> 5] >> (second & 31) & 1) != 0;
}

TT_DEV bool tt_begins_added(const TtAddedTrie& trie, const tt_u8* text, tt_u32 begin, tt_u32 end) {
  tt_u32 token;
  return tt_may_begin_added(trie, text[begin], text[begin + 1]) && tt_match_added(trie, text, begin, end, token) != 0;
}

TT_DEV void tt_set_bit(tt_u32* mask, tt_u32 at) { tt_atomic_or(mask + at / TT_WORD_BYTES, 1u << at % TT_WORD_BYTES); }

TT_DEV void tt_set_bits(tt_u32* mask, tt_u32 begin, tt_u32 end) {  // begin < end
  for (tt_u32 word = begin / TT_WORD_BYTES; word <= (end - 1) / TT_WORD_BYTES; ++word) {
    const tt_u32 first = word * TT_WORD_BYTES;
    tt_u32 bits = TT_ALL_LANES;
    if (begin > first) bits &= TT_ALL_LANES << (begin - first);
    if (end - first < TT_WORD_BYTES) bits &= (1u << (end - first)) - 1;
    tt_atomic_or(mask + word, bits);
  }
}

// `at` may begin a token of either pass: the match is written down, or its document is flagged.
TT_DEV void tt_find_added(const TtGpuParams& p, tt_u32 at) {
  const TtGpuBuffers& b = p.buffers;
  const TtAddedTrie& raw = p.tables.added_trie[0];
  const TtAddedTrie& normalized = p.tables.added_trie[1];
  const tt_u32 document = tt_document_of(b.doc_begin, p.n_docs, at), document_end = b.doc_begin[document + 1];
  tt_u32 token = 0;
  tt_u32 end = tt_may_begin_added(raw, b.text[at], b.text[at + 1]) ? tt_match_added(raw, b.text, at, document_end, token) : 0;
  bool overlap = false;
  if (end == 0) {
    if (tt_may_begin_added(normalized, b.text[at], b.text[at + 1]))
      end = tt_match_added(normalized, b.text, at, document_end, token);
    if (end == 0) return;
  } else {
    overlap = tt_begins_added(normalized, b.text, at, document_end);
  }
  for (tt_u32 inside = at + 1; inside < end && !overlap; ++inside)
    overlap = tt_begins_added(raw, b.text, inside, document_end) || tt_begins_added(normalized, b.text, inside, document_end);
  if (overlap) {
    tt_leave_document(b, document, TT_LEFT_OVERLAP);
    return;
  }
  const tt_u32 id = p.tables.added[2 * token], flags = p.tables.added[2 * token + 1];
  if (p.plain != 0 && (flags & TT_ADDED_SPECIAL) != 0) return;  // ordinary text, in which no other match begins
  if ((flags & (TT_ADDED_SINGLE_WORD | TT_ADDED_LSTRIP | TT_ADDED_RSTRIP)) != 0) {
    tt_leave_document(b, document, TT_LEFT_FLAGS);
    return;
  }
  tt_set_bit(b.edges, at);
  tt_set_bit(b.edges, end);
  tt_set_bits(b.covered, at, end);
  tt_set_bit(b.tokens, at);
  b.token_id[at] = id;
}
