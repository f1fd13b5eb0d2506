// The stages of native/engine/encoder.cpp up to pieces, and plain merging of each.
#include "coverage/trace.h"

#include <algorithm>

#include "engine/added_tokens.h"

namespace toktier::coverage {

namespace {

std::string_view view(const Segment& segment, std::uint32_t begin, std::uint32_t end) {
  return {reinterpret_cast<const char*>(segment.text) + begin, end - begin};
}

}  // namespace

TtMerge find_merge(const Program& program, RankSwap swap, std::uint32_t left, std::uint32_t right) {
  TtMerge found = tt_find_merge(program.pairs, left, right);
  if (found.rank != TT_NONE) found.rank = swap(program.rank_of(found.rank));
  return found;
}

void merge(const Program& program, RankSwap swap, std::vector<std::uint32_t>& symbols, std::vector<std::uint32_t>* fired,
           std::vector<std::uint32_t>* candidates) {
  std::vector<TtMerge> merges(symbols.size(), TtMerge{TT_NONE, TT_NONE});
  const auto look = [&](std::size_t i) {
    merges[i] = i + 1 < symbols.size() ? find_merge(program, swap, symbols[i], symbols[i + 1]) : TtMerge{TT_NONE, TT_NONE};
    if (candidates != nullptr && merges[i].rank != TT_NONE) candidates->push_back(merges[i].rank);
  };
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) look(i);
  for (;;) {
    std::size_t at = 0;
    for (std::size_t i = 1; i < merges.size(); ++i)
      if (merges[i].rank < merges[at].rank) at = i;
    if (merges.empty() || merges[at].rank == TT_NONE) return;
    if (fired != nullptr) fired->push_back(merges[at].rank);
    symbols[at] = merges[at].product;
    symbols.erase(symbols.begin() + std::ptrdiff_t(at) + 1);
    merges.erase(merges.begin() + std::ptrdiff_t(at) + 1);
    look(at);
    if (at > 0) look(at - 1);
  }
}

bool Tracer::encode(std::string_view text, std::vector<std::uint32_t>& ids) {
  EncodeOptions options;
  options.post_process = false;
  ids.clear();
  try {
    context_.encode(text, options, result_);
  } catch (const SettingsError&) {
    return false;
  } catch (const TextError&) {
    return false;
  }
  if (program_.conf[TT_CONF_TRUNC_ON] != 0 && result_.ids.size() > program_.conf[TT_CONF_TRUNC_MAX]) return false;
  ids = result_.ids;
  return true;
}

void Tracer::trace(std::string_view text, RankSwap swap, Trace& out) {
  out.symbols.clear();
  out.fired.clear();
  out.candidates.clear();
  const auto size = static_cast<std::uint32_t>(text.size());
  const Segment whole{reinterpret_cast<const std::uint8_t*>(text.data()), size, nullptr};
  const auto scan = [&](int pass, const Segment& segment, auto&& between) {
    AddedTokenScan added(program_, scan_lanes(best_level()), pass, segment.text, segment.size, false);
    AddedMatch match;
    for (std::uint32_t end = 0;; end = added.kept_end()) {
      const bool found = added.next(match);
      const std::uint32_t begin = found ? match.begin : segment.size;
      if (end < begin) between(segment.part(end, begin));
      if (!found) break;
      out.symbols.push_back(program_.added[match.token].id);
    }
  };
  scan(0, whole, [&](const Segment& raw) {
    const Segment segment =
        program_.normalizer.empty() ? raw : normalizer_.run(program_, scan_lanes(best_level()), raw, false);
    scan(1, segment, [&](const Segment& part) { normalized(part, swap, out); });
  });
}

void Tracer::normalized(const Segment& given, RankSwap swap, Trace& out) {
  Segment segment = given;
  if (program_.flag(TT_FLAG_ADD_PREFIX_SPACE) && segment.text[0] != ' ') {
    prefixed_.clear();
    prefixed_.push(' ');
    prefixed_.append(segment.text, segment.size);
    segment = {prefixed_.data(), segment.size + 1, nullptr};
  }
  std::uint32_t begin = 0;
  std::uint8_t value = TT_BOUNDARY;
  const auto close = [&](std::uint32_t end) {
    if (begin < end && value != TT_BOUNDARY_DROPPED) piece(view(segment, begin, end), swap, out);
    begin = end;
  };
  if (program_.boundary.n_class != 0) {
    BoundaryScan scan(program_, segment.text, segment.size, program_.boundary.n_token == 0, right_states_);
    for (lot_.count = 0; scan.next(lot_); lot_.count = 0)
      for (std::uint32_t k = 0; k < lot_.count; ++k) {
        close(lot_.position[k]);
        value = lot_.value[k];
      }
  }
  close(segment.size);
}

void Tracer::piece(std::string_view piece, RankSwap swap, Trace& out) {
  if (is_taken_whole(piece)) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(piece.data());
    out.symbols.push_back(tt_find_piece(program_.pieces, bytes, static_cast<std::uint32_t>(piece.size())));
    return;
  }
  spell(piece, symbols_);
  merge(program_, swap, symbols_, &out.fired, &out.candidates);
  out.symbols.insert(out.symbols.end(), symbols_.begin(), symbols_.end());
}

bool Tracer::is_taken_whole(std::string_view piece) const {
  if (!program_.flag(TT_FLAG_IGNORE_MERGES) || piece.empty() || piece.size() > program_.conf[TT_CONF_MAX_PIECE]) return false;
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(piece.data());
  return tt_find_piece(program_.pieces, bytes, static_cast<std::uint32_t>(piece.size())) != TT_NONE;
}

void Tracer::spell(std::string_view piece, std::vector<std::uint32_t>& out) const {
  out.clear();
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(piece.data());
  if (program_.byte_symbol != nullptr) {
    for (const char c : piece)
      if (program_.byte_symbol[static_cast<std::uint8_t>(c)] != TT_NONE)
        out.push_back(program_.byte_symbol[static_cast<std::uint8_t>(c)]);
    return;
  }
  const std::uint32_t unknown = program_.conf[TT_CONF_UNK_ID];
  const auto has_fallback = [&](std::uint8_t b) { return program_.fallback[b] != TT_NONE; };
  bool open = false;  // an unknown character is not written yet: byte-fallback symbols go before it
  for (std::size_t i = 0; i < piece.size();) {
    std::uint32_t length;
    const std::uint32_t symbol = tt_trie(program_.char_symbol, tt_utf8_next(bytes + i, length));
    if (symbol != TT_NONE) {
      if (open) out.push_back(unknown);
      open = false;
      out.push_back(symbol);
    } else if (program_.fallback.size != 0 && std::all_of(bytes + i, bytes + i + length, has_fallback)) {
      for (std::uint32_t k = 0; k < length; ++k) out.push_back(program_.fallback[bytes[i + k]]);
    } else if (unknown != TT_NONE) {
      if (open && !program_.flag(TT_FLAG_FUSE_UNK)) out.push_back(unknown);
      open = true;
    }
    i += length;
  }
  if (open) out.push_back(unknown);
}

}  // namespace toktier::coverage
