// Facts of the text, each thread those of its word: whether it is UTF-8, whether a normalizer may change it, and where added
// tokens are. A document for which the answer is not "ordinary" is flagged, and the CPU encodes it.
#pragma once
#include "added.h"
#include "text_word.h"

// Whether a well-formed character begins at `at`, given which bytes go on with the character before them: a byte at which a
// document begins never does, so a character that ends with its document borrows nothing of the next one.
TT_DEV bool tt_is_character(const tt_u8* at, tt_u32 continues) {
  const tt_u32 first = at[0], second = at[1];
  if (first < 0x80) return (continues & 1) == 0;
  if (first < 0xC2 || first > 0xF4) return false;
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return false;  // overlong; surrogates
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return false;  // overlong; beyond U+10FFFF
  const tt_u32 length = tt_utf8_length(static_cast<tt_u8>(first));
  return (continues & ((1u << length) - 1)) == (1u << (length - 1)) - 1;
}

// Bits of the bytes of a word at which something is malformed. `edges` has the begins of documents; those of added tokens may be
// written meanwhile, and change nothing, as they never lie at a byte that continues a character.
TT_DEV tt_u32 tt_malformed(const TtRowBits& bits, tt_u64 edges, tt_u32 text, const tt_u8* row) {
  const tt_u64 continues = bits.continues & ~edges;
  const tt_u32 high = static_cast<tt_u32>(bits.high), tails = static_cast<tt_u32>(bits.continues);
  tt_u32 malformed = (tails & static_cast<tt_u32>(edges)) | (~high & static_cast<tt_u32>(continues >> 1));
  for (tt_u32 leads = high & ~tails & text; leads != 0; leads &= leads - 1) {
    const tt_u32 at = tt_lowest_bit(leads);
    if (!tt_is_character(row + at, static_cast<tt_u32>(continues >> (at + 1)))) malformed |= 1u << at;
  }
  return malformed & text;
}

// Bits of the characters that a normalizer may change. ASCII is none of them: native/gpu/tables.cpp refuses such a program.
TT_DEV tt_u32 tt_not_inert(const TtTrie<tt_u8>& quick, tt_u32 leads, const tt_u8* row) {
  tt_u32 found = 0;
  for (; leads != 0; leads &= leads - 1) {
    const tt_u32 at = tt_lowest_bit(leads);
    tt_u32 length;
    const tt_u32 cp = tt_utf8_next(row + at, length);
    if (cp < 0x110000 && (tt_trie(quick, cp) & TT_NQC_NOT_INERT) != 0) found |= 1u << at;
  }
  return found;
}

// Flags the documents of these bytes of a word, each once.
TT_DEV void tt_leave_documents(const TtGpuParams& p, tt_u32 word, tt_u32 bits, tt_u32 reason) {
  const tt_u32 first = word * TT_WORD_BYTES;
  while (bits != 0) {
    const tt_u32 document = tt_document_of(p.buffers.doc_begin, p.n_docs, first + tt_lowest_bit(bits));
    tt_leave_document(p.buffers, document, reason);
    const tt_u32 end = p.buffers.doc_begin[document + 1] - first;
    bits = end >= TT_WORD_BYTES ? 0 : bits & (TT_ALL_LANES << end);
  }
}

TT_DEV void tt_mark_first_bytes(const TtAddedTrie& trie, tt_u32* first_bytes) {
  if (trie.two_bytes == nullptr) return;
  for (tt_u32 edge = tt_thread(); edge < trie.first_edge[1]; edge += tt_threads()) {
    const tt_u32 byte = trie.edge_byte[edge];
    tt_atomic_or(first_bytes + (byte >> 5), 1u << (byte & 31));
  }
}

TT_KERNEL(TT_TILE_THREADS) tt_facts(TtGpuParams p) {
  TT_SHARED tt_u32 rows[TT_TILE_THREADS][TT_ROW_WORDS];
  TT_SHARED tt_u32 first_bytes[8];  // of added tokens: bit by byte
  if (tt_thread() < 8) first_bytes[tt_thread()] = 0;
  tt_barrier();
  tt_mark_first_bytes(p.tables.added_trie[0], first_bytes);
  tt_mark_first_bytes(p.tables.added_trie[1], first_bytes);
  tt_barrier();
  const tt_u32 word = tt_block() * TT_TILE_THREADS + tt_thread();
  if (word >= p.n_words) return;
  const TtRowBits bits = tt_load_row(p.buffers.text, word, rows[tt_thread()]);
  const tt_u8* const row = reinterpret_cast<const tt_u8*>(rows[tt_thread()]);
  const tt_u32 text = tt_word_mask(p.n, word);
  if (bits.high != 0) {
    const tt_u64 edges = tt_load_acquire(p.buffers.edges + word) |
                         static_cast<tt_u64>(tt_load_acquire(p.buffers.edges + word + 1)) << 32;
    tt_leave_documents(p, word, tt_malformed(bits, edges, text, row), TT_LEFT_MALFORMED);
    const tt_u32 leads = static_cast<tt_u32>(bits.high & ~bits.continues) & text;
    if (p.tables.quick.stage1 != nullptr)
      tt_leave_documents(p, word, tt_not_inert(p.tables.quick, leads, row), TT_LEFT_NORMALIZED);
  }
  if (p.tables.added_trie[0].two_bytes == nullptr && p.tables.added_trie[1].two_bytes == nullptr) return;
  for (tt_u32 at = 0; at < TT_WORD_BYTES && (text >> at & 1) != 0; ++at) {
    if ((first_bytes[row[at] >> 5] >> (row[at] & 31) & 1) == 0) continue;
    const bool begins = tt_may_begin_added(p.tables.added_trie[0], row[at], row[at + 1]) ||
                        tt_may_begin_added(p.tables.added_trie[1], row[at], row[at + 1]);
    if (begins) tt_find_added(p, word * TT_WORD_BYTES + at);
  }
}
