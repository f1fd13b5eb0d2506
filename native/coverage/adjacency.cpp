// Neighbours by trying every token: a few hundred nanoseconds each.
#include "coverage/adjacency.h"

namespace toktier::coverage {

Adjacency::Adjacency(const Program& program, Tracer& tracer, Possibility& possibility)
    : program_(program),
      tracer_(tracer),
      possibility_(possibility),
      applies_(program.byte_symbol != nullptr && program.all_bytes) {
  if (!applies_) return;
  for (std::uint32_t id = 0; id < program.n_ids; ++id) {
    const std::string_view raw = program.raw_text(id);
    if ((program.token_flags[id] & TT_TOKEN_REACHABLE) == 0 || raw.empty()) continue;
    by_first_[byte_at(raw, 0)].push_back(id);
    by_last_[byte_at(raw, raw.size() - 1)].push_back(id);
  }
}

bool Adjacency::stands(std::uint32_t t, std::uint32_t s, bool behind, bool passing) {
  const std::string_view own = program_.raw_text(t), other = program_.raw_text(s);
  const std::string together = behind ? std::string(own) + std::string(other) : std::string(other) + std::string(own);
  const std::size_t cut = behind ? own.size() : other.size();
  tracer_.spell(together, symbols_);
  // Merges, lowest rank first, until both sides are whole; a merge across the cut ends it.
  std::size_t left_end = cut;  // symbols of the left side
  std::vector<std::uint32_t>& symbols = symbols_;
  for (;;) {
    const bool whole = left_end == 1 && symbols.size() == 2;
    if (whole && passing) return symbols[0] == (behind ? t : s) && symbols[1] == (behind ? s : t);
    TtMerge best{TT_NONE, TT_NONE};
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const TtMerge found = tt_find_merge(program_.pairs, symbols[i], symbols[i + 1]);
      if (found.rank < best.rank) best = found, at = i;
    }
    if (best.rank == TT_NONE) return whole && symbols[0] == (behind ? t : s) && symbols[1] == (behind ? s : t);
    if (at == left_end - 1) return false;
    symbols[at] = best.product;
    symbols.erase(symbols.begin() + std::ptrdiff_t(at) + 1);
    if (at < left_end) --left_end;
  }
}

std::optional<std::vector<std::uint32_t>> Adjacency::neighbours(std::uint32_t t, bool behind, bool passing, std::size_t most) {
  const std::string_view own = program_.raw_text(t);
  const auto parts = parts_of(own);
  if (!applies_ || !parts) return std::nullopt;
  std::vector<std::uint32_t> found;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    if (behind && !parts->tail.empty() && !tt_is_continuation(static_cast<std::uint8_t>(byte))) continue;
    for (const std::uint32_t s : behind ? by_first_[byte] : by_last_[byte]) {
      if (pairs_left_ == 0 || places_left_ == 0) return std::nullopt;
      --pairs_left_;
      const std::string_view other = program_.raw_text(s);
      const std::string together = behind ? std::string(own) + std::string(other) : std::string(other) + std::string(own);
      if (!parts_of(together) || !stands(t, s, behind, passing)) continue;
      --places_left_;
      if (possibility_.judge(together).obstacle != Obstacle::none) continue;
      found.push_back(s);
      if (found.size() >= most) return found;
    }
  }
  return found;
}

}  // namespace toktier::coverage
