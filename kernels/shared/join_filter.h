// Whether a merge may join two adjacent characters a|b: false only where no live rule can have its junction exactly there, so
// that a piece may be cut between them and each part merged alone. Not exact, as JBYT and JSYM are (bpe.h): a hash of the two
// characters asks one bit, which makes it the cheapest of all ways to cut runs of Chinese, Thai or emoji into short spans.
//
// Why a clear bit is a cut. Every symbol is made of consecutive bytes of the piece, and merging two needs a live rule (L, R). A
// merge across the bar joins an L that ends at the bar with an R that begins there. L either holds the whole of a, and then ends
// with it, or lies inside a, and is nothing but the last one to three bytes of it (the *left fragment*). R either holds the whole
// of b and begins with it, or lies inside b and is its lead byte and less than all of the rest (the *right fragment*). So every
// rule whose R begins with no continuation byte falls into one of four kinds, and setting a bit for each leaves no merge out:
//   whole and whole        a bit of (a, b);
//   whole and fragment     a bit of (a, lead byte of b);
//   fragment and whole     a bit of (last byte of a, b);
//   fragment and fragment  a bit of (last byte of a, lead byte of b).
// The first kind has a set of its own; the others, a few hundred rules at most, share a small one that stays in the nearest
// cache.
// Rules of any other shape meet inside a character or in no valid UTF-8. When no rule reaches across, merges on either side never
// see the other side: rank decides first and place second, and both are the same within a part. What remains are entries that
// are taken whole (ignore_merges): they are for whole pieces, never for parts, unless merges make them; the characters of those
// that no merges make join as well, so that a piece that reads one is in one part. Bits are set that need not be, where hashes meet and where a fragment stands for every character that has that byte at its end.
//
// Models of code points: L and R are whole characters, and only the first kind is there. A character without a symbol of its own
// either becomes byte-fallback symbols, which no live rule touches (else there is no filter), or is unknown or dropped, so that
// what stands beside it is no neighbour of its own: such characters join everything, unless every byte has a fallback.
//
// No filter at all: a byte of UTF-8 without symbol, or a live rule that an unknown or fallback symbol may reach.
#pragma once
#include "hash.h"
#include "trie.h"
#include "utf8.h"

constexpr tt_u32 TT_JOIN_A = 0x9E3779B1u, TT_JOIN_B = 0xC2B2AE3Du;
constexpr tt_u32 TT_JOIN_FRAGMENT = 0x200000;  // with a byte: beyond all code points

struct TtJoinFilter {
  const tt_u32* pairs;      // JCHR: bit set; null: there is no filter, and everything joins
  const tt_u32* fragments;  // JFRG: bit set; null: every rule meets between whole characters
  tt_u32 pair_shift, fragment_shift;  // 32 - log2 of the bits in each
  TtTrie<tt_u32> symbol;    // CSY, where characters without symbol join everything; else null
};

TT_HD tt_u32 tt_join_hash(tt_u32 left, tt_u32 right) { return left * TT_JOIN_A + right * TT_JOIN_B; }

TT_HD tt_u32 tt_bit(const tt_u32* set, tt_u32 bit) { return set[bit >> 5] >> (bit & 31) & 1; }

// a and b: the code points on either side of the bar.
TT_HD bool tt_chars_join(const TtJoinFilter& t, tt_u32 a, tt_u32 b) {
  if (t.pairs == nullptr) return true;
  tt_u32 join = tt_bit(t.pairs, tt_join_hash(a, b) >> t.pair_shift);
  if (t.fragments != nullptr) {
    const tt_u32 last = TT_JOIN_FRAGMENT | tt_last_byte(a), lead = TT_JOIN_FRAGMENT | tt_lead_byte(b);
    join |= tt_bit(t.fragments, tt_join_hash(a, lead) >> t.fragment_shift) |
            tt_bit(t.fragments, tt_join_hash(last, b) >> t.fragment_shift) |
            tt_bit(t.fragments, tt_join_hash(last, lead) >> t.fragment_shift);
  }
  if (t.symbol.stage1 != nullptr) join |= tt_trie(t.symbol, a) == TT_NONE || tt_trie(t.symbol, b) == TT_NONE;
  return join != 0;
}
