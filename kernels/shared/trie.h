// Look-up in the two-stage tries of a program: code point → value, two loads.
#pragma once
#include "layout.h"

template <typename Value>
struct TtTrie {
  const tt_u16* stage1;  // [TT_TRIE_STAGE1] block numbers
  const Value* stage2;   // [blocks * TT_TRIE_BLOCK]
};

template <typename Value>
TT_HD Value tt_trie(const tt_u16* stage1, const Value* stage2, tt_u32 cp) {
  return stage2[static_cast<tt_u32>(stage1[cp >> TT_TRIE_SHIFT]) << TT_TRIE_SHIFT | (cp & (TT_TRIE_BLOCK - 1))];
}

template <typename Value>
TT_HD Value tt_trie(const TtTrie<Value>& trie, tt_u32 cp) {
  return tt_trie(trie.stage1, trie.stage2, cp);
}
