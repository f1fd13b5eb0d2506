// Merges of a piece too long to scan, in windows: what is done so far goes on with a window that is merged alone, begins where a
// token began, and is joined at the first token that both have. Few symbols are at work at a time, whatever the piece, and a text
// that repeats is merged once.
//
// Theorem. Tokens t1..tk are what the symbols of a piece merge into when the symbols of each two neighbours ti, ti+1 alone merge
// into just these two. Merges go by lowest rank, then leftmost; ranks need not be monotone. Proof: as long as no merge crosses
// the ends of a stretch, each merge inside it is the least of the piece, hence the least of the stretch, so that the stretch
// alone goes through the same steps (native/compile/merge_proof.h). Were there a merge across the border of ti and ti+1, take the
// first that crosses any border: the stretch of both has gone through its own steps until then, and this would be its next. And
// conversely: the tokens of a piece, of which some neighbours are taken, are what their symbols alone merge into.
// Hence two rows join at a token that both have: each two neighbours of the joint row are neighbours in one of the two. Where
// what comes behind changes tokens far before it, there is no such token, and the window begins further back.
#pragma once
#include <algorithm>

#include "counters.h"
#include "faults.h"
#include "scratch.h"
#include "shared/bpe.h"

namespace toktier {

// A heap of the pairs of a row of symbols.
class HeapMerger {
 public:
  // As tt_merge_small(), in n log n.
  std::uint32_t merge(const TtPairTable& pairs, TtSymbol* symbols, std::uint32_t count);
  std::size_t bytes() const { return links_.bytes() + heap_.bytes(); }
  void release();

 private:
  struct Link {
    std::uint32_t next, previous;
  };
  Scratch<Link> links_;
  Scratch<std::uint64_t> heap_;
};

struct LongToken {
  std::uint32_t id;
  std::uint32_t end;  // symbols of the piece up to and with it
};

class WindowMerger {
 public:
  static constexpr std::uint32_t narrowest = TT_SMALL_PIECE;  // symbols of a window
  static constexpr std::uint32_t shortest = 2 * narrowest;    // symbols of a piece for which windows are faster

  // `source`: size(), not 0; id(i) of symbol i; same(i, j, n): how many symbols, at most n, are equal from i and from j on.
  // What is returned stays until the next call.
  template <typename Source>
  const Scratch<LongToken>& merge(const TtPairTable& pairs, HeapMerger& heap, const Source& source);
  std::size_t bytes() const { return tokens_.bytes() + window_.bytes() + tail_.bytes(); }
  void release();

 private:
  std::uint32_t begin_of(std::uint32_t token) const { return token == 0 ? 0 : tokens_[token - 1].end; }
  std::uint32_t token_at(std::uint32_t symbol) const;
  bool join(std::uint32_t token, std::uint32_t begin, std::uint32_t count, std::uint32_t& joint);
  template <typename Source>
  void repeat(const Source& source, std::uint32_t token);

  Scratch<LongToken> tokens_;  // what the symbols merge into up to where the last of them ends
  Scratch<TtSymbol> window_;
  Scratch<LongToken> tail_;
};

// The token that holds the symbol; it is looked for from the last one on.
inline std::uint32_t WindowMerger::token_at(std::uint32_t symbol) const {
  auto token = static_cast<std::uint32_t>(tokens_.size()) - 1;
  while (begin_of(token) > symbol) --token;
  return token;
}

// Joins the window, which has `count` tokens and begins with that token, to the tokens; `joint` is the one that both have. False
// where there is none.
inline bool WindowMerger::join(std::uint32_t token, std::uint32_t begin, std::uint32_t count, std::uint32_t& joint) {
  const auto last = static_cast<std::uint32_t>(tokens_.size());
  std::uint32_t i = token, k = 0, left_begin = begin, right_begin = begin;
  while (token != 0 && (left_begin != right_begin || tokens_[i].end != window_[k].end)) {
    const std::uint32_t left = tokens_[i].end, right = window_[k].end;
    if (left <= right) left_begin = left, ++i;
    if (right <= left) right_begin = right, ++k;
    if (i == last || k == count) return false;
  }
  k += token != 0 && k + 1 < count && TOKTIER_FAULT(window_joint);
  tokens_.resize(i);
  LongToken* const more = tokens_.room(count - k);
  for (std::uint32_t n = k; n < count; ++n) more[n - k] = {window_[n].id, window_[n].end};
  tokens_.advance(count - k);
  joint = i;
  return true;
}

// Where the symbols from `token` on come again and again, each time from one of their own tokens on, which is equal to the first:
// they are neighbours of themselves, and what lies between comes as often.
template <typename Source>
void WindowMerger::repeat(const Source& source, std::uint32_t token) {
  const auto last = static_cast<std::uint32_t>(tokens_.size());
  const std::uint32_t begin = begin_of(token), end = tokens_[last - 1].end, id = tokens_[token].id;
  const std::uint32_t length = tokens_[token].end - begin;
  std::uint32_t again = last - 1;
  while (again > token && (tokens_[again].id != id || tokens_[again].end - tokens_[again - 1].end != length)) --again;
  if (again == token) return;
  const std::uint32_t period = begin_of(again) - begin;
  const std::uint32_t same = source.same(begin, begin + period, source.size() - begin - period);
  TOKTIER_COUNT(merge_steps, same);
  if (same < (TOKTIER_FAULT(window_repeat) ? period : end - begin)) return;
  const std::uint32_t times = same < end - begin ? 1 : (same - (end - begin)) / period + 1;
  const std::uint32_t each = again - token, rest = last - again;
  tail_.clear();
  tail_.append(tokens_.data() + again, rest);
  tokens_.reserve(last + std::size_t{times} * each);
  tokens_.resize(again);
  for (std::uint32_t n = 0; n < times * each; ++n) {
    const LongToken before = tokens_[again - each + n];
    tokens_.push({before.id, before.end + period});
  }
  for (std::uint32_t n = 0; n < rest; ++n) tokens_.push({tail_[n].id, tail_[n].end + times * period});
}

// A step merges a window of which at least half is new, so that the windows of all steps are twice the piece at most. A window
// without a token in common begins twice as far back and is twice as wide or more: those before it are no more than it is, and
// again half of it is new. n log n in all.
template <typename Source>
const Scratch<LongToken>& WindowMerger::merge(const TtPairTable& pairs, HeapMerger& heap, const Source& source) {
  constexpr std::uint32_t least = narrowest / 4;
  const std::uint32_t size = source.size();
  std::uint64_t back = least;  // symbols in which a common token is looked for
  tokens_.clear();
  for (std::uint32_t done = 0; done < size;) {
    const std::uint32_t token = done == 0 ? 0 : token_at(done - static_cast<std::uint32_t>(std::min<std::uint64_t>(back, done)));
    const std::uint32_t begin = begin_of(token), old = done - begin;
    const std::uint64_t wanted = std::max(4 * back, 2 * std::uint64_t{old});
    const auto width = static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, size - begin));
    window_.resize(width);
    TtSymbol* const symbols = window_.data();
    for (std::uint32_t i = 0; i < width; ++i) symbols[i] = {source.id(begin + i), begin + i + 1, TT_NONE, TT_NONE};
    TOKTIER_COUNT(merge_steps, width);
    const std::uint32_t count =
        width <= TT_SMALL_PIECE ? tt_merge_small(pairs, symbols, width) : heap.merge(pairs, symbols, width);
    std::uint32_t joint = 0;
    if (!join(token, begin, count, joint)) {
      back = 2 * std::max<std::uint64_t>(back, old);
      continue;
    }
    back = std::max<std::uint64_t>(back / 2, least);
    repeat(source, joint);
    done = tokens_[tokens_.size() - 1].end;
  }
  return tokens_;
}

}  // namespace toktier
