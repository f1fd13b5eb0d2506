// Symbols, cuts and merges of one piece. Positions: symbols have lengths, and a token's place in the piece is the sum of the
// lengths before it, which is how the reference counts. A dropped character has no length, so what follows it moves up.
#include "piece_encoder.h"

#include <algorithm>
#include <functional>

#include "counters.h"

namespace toktier {

PieceEncoder::PieceEncoder(const Program& program)
    : program_(program), parts_apart_(program.flag(TT_FLAG_IGNORE_MERGES)), max_piece_(program.conf[TT_CONF_MAX_PIECE]) {}

void PieceEncoder::encode(const Segment& segment, std::uint32_t begin, std::uint32_t end, TokenBuffer& out) {
  out_ = &out;
  origin_ = segment.origin == nullptr ? nullptr : segment.origin + begin;
  text_ = segment.text + begin;
  mapped_ = nullptr;
  const std::uint32_t size = end - begin;

  TOKTIER_COUNT(piece_probes, 1);
  if (size <= cached_piece) {
    const PieceKey key(text_, size, false);
    if (emit_cached(key, 0, size)) return;
    const std::uint32_t id = size <= max_piece_ ? tt_find_piece(program_.pieces, text_, size) : TT_NONE;
    if (id != TT_NONE) {
      cache_.insert(key, &id, 1);
      emit(id, 0, size);
      return;
    }
  } else if (size <= max_piece_) {
    const std::uint32_t id = tt_find_piece(program_.pieces, text_, size);
    if (id != TT_NONE) {
      emit(id, 0, size);
      return;
    }
  }
  if (program_.byte_symbol == nullptr)
    encode_characters(size);
  else if (program_.all_bytes || std::all_of(text_, text_ + size, [&](std::uint8_t b) { return program_.byte_symbol[b] != TT_NONE; }))
    encode_bytes(size);
  else
    encode_incomplete_bytes(size);
}

void PieceEncoder::emit(std::uint32_t id, std::uint32_t begin, std::uint32_t end) {
  out_->ids.push(id);
  if (origin_ == nullptr) return;
  const std::uint32_t last = end - 1;
  const std::uint32_t first_byte = mapped_ == nullptr ? begin : mapped_[begin];
  const std::uint32_t last_byte = mapped_ == nullptr ? last : mapped_[last];
  out_->offsets.push({origin_[first_byte], origin_[last_byte] + 1});
}

bool PieceEncoder::emit_cached(const PieceKey& key, std::uint32_t position, std::uint32_t length) {
  const PieceCache::Entry* entry = cache_.find(key);
  if (entry == nullptr) return false;
  if (origin_ == nullptr) {
    std::uint32_t* out = out_->ids.room(cached_ids);
    std::memcpy(out, entry->ids, sizeof entry->ids);
    out_->ids.advance(1 + (entry->ids[1] != TT_NONE) + (entry->ids[2] != TT_NONE) + (entry->ids[3] != TT_NONE));
    return true;
  }
  std::uint32_t count = 0, total = 0;
  while (count < cached_ids && entry->ids[count] != TT_NONE) total += static_cast<std::uint32_t>(program_.raw_text(entry->ids[count++]).size());
  if (count == 1) {
    emit(entry->ids[0], position, position + length);
    return true;
  }
  if (total != length) return false;  // the tables do not say where its tokens end: merge again
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto size = static_cast<std::uint32_t>(program_.raw_text(entry->ids[i]).size());
    if (size == 0) return false;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto size = static_cast<std::uint32_t>(program_.raw_text(entry->ids[i]).size());
    emit(entry->ids[i], position, position + size);
    position += size;
  }
  return true;
}

void PieceEncoder::merge_and_emit(std::uint32_t count, std::uint32_t position, const PieceKey* key) {
  rank_.resize(count);
  product_.resize(count);
  TOKTIER_COUNT(merge_steps, count);
  count = count <= TT_SMALL_PIECE ? tt_merge_small(program_.pairs, symbols_.data(), ends_.data(), rank_.data(), product_.data(), count)
                                  : merge_long(count);
  if (key != nullptr && count <= cached_ids) cache_.insert(*key, symbols_.data(), count);
  for (std::uint32_t i = 0; i < count; ++i) {
    emit(symbols_[i], position, ends_[i]);
    position = ends_[i];
  }
}

// A heap of (rank, position) of every pair that merges; an entry is stale when the pair at its position has another rank by
// now, which also tells its symbols, because symbols only grow. n log n whatever the text.
std::uint32_t PieceEncoder::merge_long(std::uint32_t count) {
  next_.resize(count);
  previous_.resize(count);
  heap_.clear();
  const auto look = [&](std::uint32_t i, std::uint32_t after) {
    const TtMerge m = after < count ? tt_find_merge(program_.pairs, symbols_[i], symbols_[after]) : TtMerge{TT_NONE, TT_NONE};
    TOKTIER_COUNT(pair_probes, 1);
    rank_[i] = m.rank;
    product_[i] = m.product;
    if (m.rank != TT_NONE) heap_.push(std::uint64_t{m.rank} << 32 | i);
    return m.rank != TT_NONE;
  };
  const auto later = std::greater<std::uint64_t>();
  for (std::uint32_t i = 0; i < count; ++i) {
    previous_[i] = i - 1;  // TT_NONE before the first
    next_[i] = i + 1;
    look(i, i + 1);
  }
  std::make_heap(heap_.data(), heap_.data() + heap_.size(), later);
  while (!heap_.empty()) {
    std::pop_heap(heap_.data(), heap_.data() + heap_.size(), later);
    const std::uint64_t top = heap_[heap_.size() - 1];
    heap_.resize(heap_.size() - 1);
    TOKTIER_COUNT(merge_steps, 1);
    const auto at = static_cast<std::uint32_t>(top);
    if (rank_[at] != top >> 32) continue;
    const std::uint32_t gone = next_[at], after = next_[gone];
    symbols_[at] = product_[at];
    ends_[at] = ends_[gone];
    rank_[gone] = TT_NONE;
    next_[at] = after;
    if (after < count) previous_[after] = at;
    if (look(at, after)) std::push_heap(heap_.data(), heap_.data() + heap_.size(), later);
    const std::uint32_t before = previous_[at];
    if (before != TT_NONE && look(before, at)) std::push_heap(heap_.data(), heap_.data() + heap_.size(), later);
  }
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < count; i = next_[i]) {
    symbols_[kept] = symbols_[i];
    ends_[kept++] = ends_[i];
  }
  return kept;
}

// A piece of a byte-level model whose bytes all have symbols.
void PieceEncoder::encode_bytes(std::uint32_t size) {
  if (size <= cached_piece || program_.join_bytes == nullptr) {
    byte_part(0, size, true);
    return;
  }
  std::uint32_t begin = 0;
  for (std::uint32_t i = 1; i < size; ++i)
    if (!tt_bytes_join(program_.join_bytes, text_[i - 1], text_[i])) {
      byte_part(begin, i, false);
      begin = i;
    }
  byte_part(begin, size, begin == 0);
}

// `is_piece`: the whole piece, which was looked up already.
void PieceEncoder::byte_part(std::uint32_t begin, std::uint32_t end, bool is_piece) {
  const std::uint32_t size = end - begin;
  const std::uint8_t* const text = text_ + begin;
  const bool cached = size <= cached_piece;
  const PieceKey key(text, cached ? size : 1, parts_apart_ && !is_piece);
  if (!is_piece && look_up_part(cached ? &key : nullptr, text, size, begin)) return;
  symbols_.resize(size);
  ends_.resize(size);
  for (std::uint32_t i = 0; i < size; ++i) {
    symbols_[i] = program_.byte_symbol[text[i]];
    ends_[i] = begin + i + 1;
  }
  merge_and_emit(size, begin, cached ? &key : nullptr);
}

// A part is one token when merges alone make it so; an entry that only ignore_merges reaches is not for parts.
bool PieceEncoder::look_up_part(const PieceKey* key, const std::uint8_t* text, std::uint32_t size, std::uint32_t position) {
  TOKTIER_COUNT(piece_probes, 1);
  if (key != nullptr && emit_cached(*key, position, size)) return true;
  if (size > max_piece_) return false;
  const std::uint32_t id = tt_find_piece(program_.pieces, text, size);
  if (id == TT_NONE || (program_.token_flags[id] & TT_TOKEN_REACHABLE) == 0) return false;
  if (key != nullptr) cache_.insert(*key, &id, 1);
  emit(id, position, position + size);
  return true;
}

// A piece with a byte that has no symbol: it becomes the unknown token, or vanishes and lets its neighbours meet. The
// reference counts lengths in its byte alphabet, where a byte is a character of one or two bytes.
void PieceEncoder::encode_incomplete_bytes(std::uint32_t size) {
  const std::uint32_t unk = program_.conf[TT_CONF_UNK_ID];
  const bool fuse = program_.flag(TT_FLAG_FUSE_UNK);
  symbols_.clear();
  ends_.clear();
  mapping_.clear();
  std::uint32_t position = 0, pending = 0;
  const auto add = [&](std::uint32_t symbol, std::uint32_t length) {
    position += length;
    symbols_.push(symbol);
    ends_.push(position);
  };
  for (std::uint32_t i = 0; i < size; ++i) {
    const std::uint8_t byte = text_[i];
    const std::uint32_t length = byte >= '!' && byte <= '~' ? 1 : 2, symbol = program_.byte_symbol[byte];
    for (std::uint32_t k = 0; k < length; ++k) mapping_.push(i);
    if (symbol != TT_NONE || !fuse) {
      if (pending != 0) add(unk, pending);
      pending = 0;
    }
    if (symbol != TT_NONE)
      add(symbol, length);
    else if (unk != TT_NONE)
      pending += length;
  }
  if (pending != 0) add(unk, pending);
  mapped_ = mapping_.data();
  if (!symbols_.empty()) merge_and_emit(static_cast<std::uint32_t>(symbols_.size()), 0, nullptr);
}

// A piece of a model of code points.
void PieceEncoder::encode_characters(std::uint32_t size) {
  const std::uint32_t unk = program_.conf[TT_CONF_UNK_ID];
  const bool fuse = program_.flag(TT_FLAG_FUSE_UNK);
  symbols_.clear();
  ends_.clear();
  part_ = {};
  std::uint32_t pending = 0;  // bytes of the unknown token that is still open; byte-fallback symbols go before it
  bool ascii_before = false;
  for (std::uint32_t i = 0; i < size;) {
    const std::uint8_t byte = text_[i];
    std::uint32_t length = 1;
    const std::uint32_t symbol =
        byte < 0x80 ? program_.ascii_symbol[byte] : tt_trie(program_.char_symbol, tt_utf8_next(text_ + i, length));
    if (symbol != TT_NONE) {
      if (pending != 0) push_symbol(unk, pending, i, false, Join::unknown);
      pending = 0;
      Join join = Join::unknown;
      if (byte < 0x80 && ascii_before && !program_.join_ascii.empty()) {
        const std::uint32_t left = text_[i - 1];
        join = (program_.join_ascii[left << 1 | byte >> 6] >> (byte & 63) & 1) != 0 ? Join::yes : Join::no;
      }
      push_symbol(symbol, length, i, true, join);
      ascii_before = byte < 0x80;
    } else {
      ascii_before = false;
      const auto has_fallback = [&](std::uint8_t b) { return program_.fallback[b] != TT_NONE; };
      if (program_.fallback.size != 0 && std::all_of(text_ + i, text_ + i + length, has_fallback)) {
        for (std::uint32_t k = 0; k < length; ++k) push_symbol(program_.fallback[text_[i + k]], 1, i, false, Join::unknown);
      } else if (unk != TT_NONE) {
        if (pending != 0 && !fuse) {
          push_symbol(unk, pending, i, false, Join::unknown);
          pending = 0;
        }
        pending += length;
      }
    }
    i += length;
  }
  if (pending != 0) push_symbol(unk, pending, size, false, Join::unknown);
  close_part(part_.position == 0 && part_.contiguous && part_.text_begin == 0 && part_.text_end == size);
}

void PieceEncoder::push_symbol(std::uint32_t symbol, std::uint32_t length, std::uint32_t text_begin, bool spelled, Join join) {
  if (!symbols_.empty()) {
    const std::uint32_t last = symbols_[symbols_.size() - 1];
    if (program_.conf[TT_CONF_JOIN_KIND] != TT_JOIN_SYMBOLS)
      join = Join::yes;
    else if (join == Join::unknown)
      join = tt_symbols_join(program_.join_symbols, last, symbol) ? Join::yes : Join::no;
    if (join == Join::no) {
      const std::uint32_t end = ends_[ends_.size() - 1];
      close_part(false);
      part_.position = end;
      symbols_.clear();
      ends_.clear();
    }
  }
  if (symbols_.empty()) {
    part_.text_begin = part_.text_end = text_begin;
    part_.contiguous = true;
  }
  const std::uint32_t position = symbols_.empty() ? part_.position : ends_[ends_.size() - 1];
  part_.contiguous = part_.contiguous && spelled && text_begin == part_.text_end;
  part_.text_end = text_begin + length;
  symbols_.push(symbol);
  ends_.push(position + length);
}

void PieceEncoder::close_part(bool is_piece) {
  const auto count = static_cast<std::uint32_t>(symbols_.size());
  if (count == 0) return;
  if (count == 1) {
    emit(symbols_[0], part_.position, ends_[0]);
    return;
  }
  const std::uint32_t size = part_.text_end - part_.text_begin;
  const std::uint8_t* const text = text_ + part_.text_begin;
  const bool cached = part_.contiguous && size <= cached_piece;
  const PieceKey key(text, cached ? size : 1, parts_apart_ && !is_piece);
  if (part_.contiguous && !is_piece && look_up_part(cached ? &key : nullptr, text, size, part_.position)) return;
  merge_and_emit(count, part_.position, cached ? &key : nullptr);
}

std::size_t PieceEncoder::bytes() const {
  return symbols_.bytes() + ends_.bytes() + rank_.bytes() + product_.bytes() + next_.bytes() + previous_.bytes() + mapping_.bytes() +
         heap_.bytes();
}

void PieceEncoder::release() {
  symbols_.release();
  ends_.release();
  rank_.release();
  product_.release();
  next_.release();
  previous_.release();
  mapping_.release();
  heap_.release();
}

}  // namespace toktier
