#include "long_piece.h"

#include <functional>

namespace toktier {

// A heap of (rank, position) of every pair that merges; an entry is stale when the pair at its position has another rank by
// now, which also tells its symbols, because symbols only grow. n log n whatever the text.
std::uint32_t HeapMerger::merge(const TtPairTable& pairs, TtSymbol* symbols, std::uint32_t count) {
  links_.resize(count);
  heap_.clear();
  const auto look = [&](std::uint32_t i, std::uint32_t after) {
    TtSymbol& s = symbols[i];
    const bool pair = after < count - TOKTIER_FAULT(heap_last_pair);
    const TtMerge m = pair ? tt_find_merge(pairs, s.id, symbols[after].id) : TtMerge{TT_NONE, TT_NONE};
    TOKTIER_COUNT(pair_probes, 1);
    s.rank = m.rank;
    s.product = m.product;
    if (m.rank != TT_NONE) heap_.push(std::uint64_t{m.rank} << 32 | (TOKTIER_FAULT(heap_tie) ? ~i : i));
    return m.rank != TT_NONE;
  };
  const auto later = std::greater<std::uint64_t>();
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i + 9 < count) tt_prefetch_merge(pairs, symbols[i + 8].id, symbols[i + 9].id);
    links_[i] = {i + 1, i - 1};  // TT_NONE before the first
    look(i, i + 1);
  }
  std::make_heap(heap_.data(), heap_.data() + heap_.size(), later);
  while (!heap_.empty()) {
    std::pop_heap(heap_.data(), heap_.data() + heap_.size(), later);
    const std::uint64_t top = heap_[heap_.size() - 1];
    heap_.resize(heap_.size() - 1);
    TOKTIER_COUNT(merge_steps, 1);
    const auto at = static_cast<std::uint32_t>(TOKTIER_FAULT(heap_tie) ? ~top : top);
    TtSymbol& s = symbols[at];
    if (s.rank != top >> 32) continue;
    const std::uint32_t gone = links_[at].next, after = links_[gone].next, before = links_[at].previous;
    s.id = s.product;
    s.end = symbols[gone].end;
    symbols[gone].rank = TT_NONE;
    links_[at].next = after;
    if (after < count) {
      links_[after].previous = at;
      tt_prefetch_merge(pairs, s.id, symbols[after].id);
    }
    if (before != TT_NONE && look(before, at)) std::push_heap(heap_.data(), heap_.data() + heap_.size(), later);
    if (look(at, after)) std::push_heap(heap_.data(), heap_.data() + heap_.size(), later);
  }
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < count; i = links_[i].next) symbols[kept++] = symbols[i];
  return kept;
}

void HeapMerger::release() {
  links_.release();
  heap_.release();
}

void WindowMerger::release() {
  tokens_.release();
  window_.release();
  tail_.release();
}

}  // namespace toktier
