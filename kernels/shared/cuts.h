// Whether a text may be cut at a position: one step that looks at two characters before it and three after it. A cut holds
// whatever else the text is: the ids of the two parts, one after the other, are the ids of the whole.
// All kinds of cuts meet here: contexts of classes (CUT2, CUT3), vocabulary (JBYT, JSYM within CUTI), guards of the normalizer
// (GCP, GIMG) and of added tokens (GPAR, GBYT); docs/program-format.md, "Cuts", says why each is needed. Not here: the loop.
#pragma once
#include "boundary.h"
#include "bpe.h"
#include "layout.h"
#include "trie.h"
#include "utf8.h"

struct TtCuts {
  const tt_u8* token_pairs;  // GPAR
  const tt_u8* token_edges;  // GBYT
  TtTrie<tt_u8> guard;       // GCP
  TtTrie<tt_u8> chars;       // CHR
  const tt_u32* images;      // GIMG
  tt_u64 n_images;
  const tt_u8* pair;         // CUT2; null: none
  const tt_u8* triple;       // CUT3; null: none, or a normalizer that strips
  const tt_u8* inner;        // CUTI; null: none
  const tt_u8* join_bytes;   // JBYT
  TtTrie<tt_u32> symbol;     // CSY
  TtJoinTable join_symbols;  // JSYM
  tt_u32 join;               // TtJoinKind; none where a part of a piece may be taken whole
  bool has_form, has_lstrip, has_rstrip;
};

// A character of the raw text and the one that the normalizer makes of it, the same unless TT_GUARD_IMAGE.
struct TtCutChar {
  tt_u32 raw, image;
  tt_u32 guard;  // TtGuard
  tt_u32 chars;  // bits of CHR, of either
};

TT_HD tt_u32 tt_cut_image(const TtCuts& t, tt_u32 cp) {
  tt_u64 low = 0, high = t.n_images;
  while (low < high) {
    const tt_u64 middle = (low + high) / 2;
    if (t.images[middle * 2] < cp)
      low = middle + 1;
    else
      high = middle;
  }
  return low < t.n_images && t.images[low * 2] == cp ? t.images[low * 2 + 1] : cp;
}

TT_HD TtCutChar tt_cut_char(const TtCuts& t, tt_u32 cp) {
  TtCutChar c{cp, cp, tt_trie(t.guard, cp), tt_trie(t.chars, cp)};
  if ((c.guard & TT_GUARD_IMAGE) != 0) {
    c.image = tt_cut_image(t, cp);
    c.chars |= tt_trie(t.chars, c.image);
  }
  return c;
}

// TtEdge of the tokens, of either pass, that may end with the character, and that may begin with it.
TT_HD tt_u32 tt_cut_ends(const TtCuts& t, const TtCutChar& c) {
  return t.token_edges[tt_last_byte(c.raw)] | t.token_edges[tt_last_byte(c.image)];
}
TT_HD tt_u32 tt_cut_begins(const TtCuts& t, const TtCutChar& c) {
  return t.token_edges[tt_lead_byte(c.raw)] | t.token_edges[tt_lead_byte(c.image)];
}

// True unless a match of an added token may end with the character, the white space that it takes in included.
TT_HD bool tt_cut_no_match_ends(const TtCuts& t, const TtCutChar& c) {
  return (tt_cut_ends(t, c) & TT_EDGE_ENDS) == 0 && !(t.has_rstrip && (c.chars & TT_CHAR_SPACE) != 0);
}
TT_HD bool tt_cut_no_match_begins(const TtCuts& t, const TtCutChar& c) {
  return (tt_cut_begins(t, c) & TT_EDGE_BEGINS) == 0 && !(t.has_lstrip && (c.chars & TT_CHAR_SPACE) != 0);
}

// True when no match of an added token reaches across the bar, looks across it or takes in white space across it.
TT_HD bool tt_cut_tokens(const TtCuts& t, const TtCutChar& left, const TtCutChar& right) {
  if (tt_bytes_join(t.token_pairs, tt_last_byte(left.raw), tt_lead_byte(right.raw)) ||
      tt_bytes_join(t.token_pairs, tt_last_byte(left.image), tt_lead_byte(right.image)))
    return false;
  const tt_u32 ends = tt_cut_ends(t, left), begins = tt_cut_begins(t, right);
  if ((ends & TT_EDGE_ENDS_WORD) != 0 && (right.chars & TT_CHAR_WORD) != 0) return false;
  if ((begins & TT_EDGE_BEGINS_WORD) != 0 && (left.chars & TT_CHAR_WORD) != 0) return false;
  const bool space_left = (left.chars & TT_CHAR_SPACE) != 0, space_right = (right.chars & TT_CHAR_SPACE) != 0;
  if (space_left && space_right) return !t.has_lstrip && !t.has_rstrip;
  if (space_left && (begins & TT_EDGE_LSTRIP) != 0) return false;
  return !(space_right && (ends & TT_EDGE_RSTRIP) != 0);
}

// True when no merge joins the two characters, so that a piece may be cut between them.
TT_HD bool tt_cut_apart(const TtCuts& t, tt_u32 left, tt_u32 right) {
  if (t.join == TT_JOIN_BYTES) return !tt_bytes_join(t.join_bytes, tt_last_byte(left), tt_lead_byte(right));
  if (t.join != TT_JOIN_SYMBOLS) return false;
  // A character without symbol of its own may fuse with others or vanish.
  const tt_u32 a = tt_trie(t.symbol, left), b = tt_trie(t.symbol, right);
  return a != TT_NONE && b != TT_NONE && !tt_symbols_join(t.join_symbols, a, b);
}

// The kind of cut at byte p of valid UTF-8, 0 < p < size. `continued`: the first segment of the right part gets neither the
// prefix space nor what Prepend puts in front.
TT_HD TtCutKind tt_cut_kind(const TtCuts& t, const TtBoundary& b, const tt_u8* text, tt_u64 size, tt_u64 p, bool continued) {
  if (tt_is_continuation(text[p])) return TT_CUT_NONE;
  tt_u32 left_length, right_length, length;
  const TtCutChar left = tt_cut_char(t, tt_utf8_previous(text + p, left_length));
  const TtCutChar right = tt_cut_char(t, tt_utf8_next(text + p, right_length));
  if ((left.guard & (TT_GUARD_OPAQUE | TT_GUARD_NOT_AFTER)) != 0) return TT_CUT_NONE;
  if ((right.guard & (TT_GUARD_OPAQUE | TT_GUARD_NOT_BEFORE)) != 0) return TT_CUT_NONE;
  if ((right.guard & TT_GUARD_PREFIX) != 0 && !(continued && tt_cut_no_match_ends(t, left))) return TT_CUT_NONE;
  if (!tt_cut_tokens(t, left, right)) return TT_CUT_NONE;
  // The character after `right`, and whether it is there. A mark there would change `right`, so a form needs to know it.
  const tt_u64 next_at = p + right_length;
  const bool has_next = next_at < size;
  TtCutChar next{};
  if (has_next) {
    next = tt_cut_char(t, tt_utf8_next(text + next_at, length));
    if (t.has_form && (next.guard & TT_GUARD_OPAQUE) != 0) return TT_CUT_NONE;
  } else if (t.has_form) {
    return TT_CUT_NONE;
  }
  if (b.n_class == 0) return tt_cut_apart(t, left.image, right.image) ? TT_CUT_JOIN : TT_CUT_NONE;
  const tt_u32 n = b.n_class, l = tt_class(b, left.image), r = tt_class(b, right.image);
  if (t.pair != nullptr && t.pair[l * n + r] != 0) return TT_CUT_PAIR;
  if (t.triple != nullptr) {
    // The third character must be of the same segment as the other two: the table speaks of no start or end between them.
    if (p > left_length) {
      const TtCutChar before = tt_cut_char(t, tt_utf8_previous(text + (p - left_length), length));
      if ((before.guard & TT_GUARD_OPAQUE) == 0 && tt_cut_no_match_ends(t, before) &&
          t.triple[(tt_class(b, before.image) * n + l) * n + r] != 0)
        return TT_CUT_LEFT_TRIPLE;
    }
    if (has_next && (next.guard & TT_GUARD_OPAQUE) == 0 && tt_cut_no_match_begins(t, next) &&
        t.triple[((n + l) * n + r) * n + tt_class(b, next.image)] != 0) {
      bool whole = !t.has_form;
      const tt_u64 last_at = next_at + tt_utf8_length(text[next_at]);
      if (!whole && last_at < size)
        whole = (tt_trie(t.guard, tt_utf8_next(text + last_at, length)) & TT_GUARD_OPAQUE) == 0;
      if (whole) return TT_CUT_RIGHT_TRIPLE;
    }
  }
  return t.inner != nullptr && t.inner[l * n + r] != 0 && tt_cut_apart(t, left.image, right.image) ? TT_CUT_JOIN : TT_CUT_NONE;
}
