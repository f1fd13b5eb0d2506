// Symbols, cuts and merges of one piece. Positions: symbols have lengths, and a token's place in the piece is the sum of the
// lengths before it, which is how the reference counts. A dropped character has no length, so what follows it moves up.
#include "piece_encoder.h"

#include <algorithm>

#include "counters.h"
#include "faults.h"

namespace toktier {
namespace {

// Symbols of a stretch of bytes that all have one.
struct ByteSource {
  const std::uint8_t* text;
  std::uint32_t count;
  const std::uint32_t* byte_symbol;
  std::uint32_t size() const { return count; }
  std::uint32_t id(std::uint32_t i) const { return byte_symbol[text[i]]; }
  std::uint32_t same(std::uint32_t i, std::uint32_t j, std::uint32_t most) const {
    std::uint32_t n = 0;
    for (std::uint64_t left, right; n + 8 <= most; n += 8) {
      std::memcpy(&left, text + i + n, 8);
      std::memcpy(&right, text + j + n, 8);
      if (left != right) break;
    }
    while (n < most && text[i + n] == text[j + n]) ++n;
    return n;
  }
};

struct SymbolSource {
  const TtSymbol* symbols;
  std::uint32_t count;
  std::uint32_t size() const { return count; }
  std::uint32_t id(std::uint32_t i) const { return symbols[i].id; }
  std::uint32_t same(std::uint32_t i, std::uint32_t j, std::uint32_t most) const {
    std::uint32_t n = 0;
    while (n < most && symbols[i + n].id == symbols[j + n].id) ++n;
    return n;
  }
};

}  // namespace

PieceEncoder::PieceEncoder(const Program& program)
    : program_(program), parts_apart_(program.flag(TT_FLAG_IGNORE_MERGES)), max_piece_(program.conf[TT_CONF_MAX_PIECE]) {}

void PieceEncoder::encode(const Segment& segment, const std::uint32_t* bounds, const std::uint8_t* dropped, std::uint32_t count,
                          TokenBuffer& out) {
  constexpr std::uint32_t ahead = 32;
  ShortCache::Key keys[ahead];
  const ShortCache::Entry* sets[ahead];
  const bool with_origin = segment.origin != nullptr;
  out_ = &out;
  TOKTIER_COUNT(piece_probes, count);
  for (std::uint32_t first = 0; first < count; first += ahead) {
    const std::uint32_t block = std::min(ahead, count - first);
    const std::uint32_t* const bound = bounds + first;
    for (std::uint32_t k = 0; k < block; ++k) {
      const std::uint32_t size = bound[k + 1] - bound[k];
      if (size > ShortCache::Key::longest) continue;
      keys[k].set(segment.text + bound[k], size, segment.size - bound[k], false);
      if (TOKTIER_FAULT(block_border) && k == ahead - 1 && bound[k] - bound[k - 1] <= ShortCache::Key::longest)
        keys[k] = keys[k - 1];
      sets[k] = short_.prefetch(keys[k]);
    }
    std::uint32_t* ids = out.ids.room(ahead * ShortCache::most_ids);
    for (std::uint32_t k = 0; k < block; ++k) {
      const std::uint32_t size = bound[k + 1] - bound[k];
      if (size == 0 || dropped[first + k] == TT_BOUNDARY_DROPPED) continue;
      if (size <= ShortCache::Key::longest && !with_origin) {
        if (const ShortCache::Entry* const hit = ShortCache::find(sets[k], keys[k])) {
          std::memcpy(ids, hit->ids, sizeof hit->ids);
          ids += hit->count();
          continue;
        }
      }
      out.ids.resize(static_cast<std::size_t>(ids - out.ids.data()));
      origin_ = with_origin ? segment.origin + bound[k] : nullptr;
      text_ = segment.text + bound[k];
      readable_ = segment.size - bound[k];
      mapped_ = nullptr;
      encode_uncached(size, true);
      ids = out.ids.room(ahead * ShortCache::most_ids);
    }
    out.ids.resize(static_cast<std::size_t>(ids - out.ids.data()));
  }
}

void PieceEncoder::encode_word(const std::uint8_t* text, std::uint32_t size, std::uint64_t readable, bool part,
                               TokenBuffer& out) {
  out_ = &out;
  origin_ = nullptr;
  text_ = text;
  readable_ = readable;
  mapped_ = nullptr;
  encode_uncached(size, !part);
}

void PieceEncoder::encode_uncached(std::uint32_t size, bool is_piece) {
  if (look_up({0, size, 0, is_piece})) return;
  if (program_.byte_symbol == nullptr)
    encode_characters(size, is_piece);
  else if (program_.all_bytes ||
           std::all_of(text_, text_ + size, [&](std::uint8_t b) { return program_.byte_symbol[b] != TT_NONE; }))
    encode_bytes(size, is_piece);
  else
    encode_incomplete_bytes(size);
}

template <typename Cache>
typename Cache::Key PieceEncoder::key_of(const Stretch& s) const {
  return typename Cache::Key(text_ + s.begin, s.size, readable_ - s.begin, parts_apart_ && !s.is_piece);
}

template <typename Cache>
bool PieceEncoder::emit_from(const Cache& cache, const Stretch& s) {
  const typename Cache::Entry* const hit = cache.find(key_of<Cache>(s));
  return hit != nullptr && emit_remembered(hit->ids, hit->count(), s);
}

// One of the caches, then the whole-piece table. A part is one token when merges alone make it so; an entry that only
// ignore_merges reaches is not for parts.
bool PieceEncoder::look_up(const Stretch& s) {
  TOKTIER_COUNT(piece_probes, 1);
  if (s.size <= ShortCache::Key::longest) {
    if (emit_from(short_, s)) return true;
  } else if (s.size <= LongCache::Key::longest) {
    if (emit_from(long_, s)) return true;
  } else if (s.size <= WideCache::Key::longest) {
    if (emit_from(wide_, s)) return true;
  }
  if (s.size > max_piece_) return false;
  const std::uint32_t id = tt_find_piece(program_.pieces, text_ + s.begin, s.size);
  if (id == TT_NONE || ((!s.is_piece || TOKTIER_FAULT(ignore_merges_off)) && !TOKTIER_FAULT(parts_as_pieces) &&
                        (program_.token_flags[id] & TT_TOKEN_REACHABLE) == 0))
    return false;
  remember(s, &id, 1);
  emit(id, s.position, s.position + s.size);
  return true;
}

void PieceEncoder::remember(const Stretch& s, const std::uint32_t* ids, std::uint32_t count) {
  if (s.size <= ShortCache::Key::longest) {
    if (count <= ShortCache::most_ids) short_.insert(key_of<ShortCache>(s), ids, count);
  } else if (s.size <= LongCache::Key::longest) {
    if (count <= LongCache::most_ids) long_.insert(key_of<LongCache>(s), ids, count);
  } else if (s.size <= WideCache::Key::longest) {
    if (count <= WideCache::most_ids) wide_.insert(key_of<WideCache>(s), ids, count);
  }
}

bool PieceEncoder::emit_remembered(const std::uint32_t* ids, std::uint32_t count, const Stretch& s) {
  if (origin_ == nullptr) {
    out_->ids.append(ids, count);
    return true;
  }
  if (count == 1) {
    emit(ids[0], s.position, s.position + s.size);
    return true;
  }
  // Where each token ends is what it reads; should the tables not add up, merging says it.
  std::uint64_t total = 0;
  bool empty = false;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::size_t size = program_.raw_text(ids[i]).size();
    total += size;
    empty |= size == 0;
  }
  if (total != s.size || empty) return false;
  std::uint32_t position = s.position;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto size = static_cast<std::uint32_t>(program_.raw_text(ids[i]).size());
    emit(ids[i], position, position + size);
    position += size;
  }
  return true;
}

void PieceEncoder::emit(std::uint32_t id, std::uint32_t begin, std::uint32_t end) {
  out_->ids.push(id);
  if (origin_ == nullptr) return;
  const std::uint32_t last = end - 1;
  const std::uint32_t first_byte = mapped_ == nullptr ? begin : mapped_[begin];
  const std::uint32_t last_byte = mapped_ == nullptr ? last : mapped_[last];
  out_->offsets.push({origin_[first_byte], origin_[last_byte] + 1});
}

// Merges symbols_ and emits what is left; `stretch` is what they spell, when it may be remembered.
void PieceEncoder::merge_and_emit(const Stretch* stretch, std::uint32_t position) {
  auto count = static_cast<std::uint32_t>(symbols_.size());
  if (count >= WindowMerger::shortest) {  // too long to be remembered
    merge_in_windows(SymbolSource{symbols_.data(), count}, position, [&](std::uint32_t i) { return symbols_[i - 1].end; });
    return;
  }
  TOKTIER_COUNT(merge_steps, count);
  if (TOKTIER_FAULT(small_border) && count == TT_SMALL_PIECE) --count;
  count = count <= TT_SMALL_PIECE ? tt_merge_small(program_.pairs, symbols_.data(), count)
                                  : heap_.merge(program_.pairs, symbols_.data(), count);
  if (stretch != nullptr && count <= WideCache::most_ids) {
    std::uint32_t ids[WideCache::most_ids] = {};
    for (std::uint32_t i = 0; i < count; ++i) ids[i] = symbols_[i].id;
    remember(*stretch, ids, count);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    emit(symbols_[i].id, position, symbols_[i].end);
    position = symbols_[i].end;
  }
}

// `end_of`: where a row of so many symbols ends.
template <typename Source, typename EndOf>
void PieceEncoder::merge_in_windows(const Source& source, std::uint32_t position, EndOf&& end_of) {
  const Scratch<LongToken>& tokens = windows_.merge(program_.pairs, heap_, source);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::uint32_t end = end_of(tokens[i].end);
    emit(tokens[i].id, position, end);
    position = end;
  }
}

// A piece of a byte-level model whose bytes all have symbols.
void PieceEncoder::encode_bytes(std::uint32_t size, bool is_piece) {
  if (size <= ShortCache::Key::longest || program_.join_bytes == nullptr) {
    byte_part({0, size, 0, is_piece}, true);
    return;
  }
  std::uint32_t begin = 0;
  for (std::uint32_t i = 1; i < size; ++i)
    if (!tt_bytes_join(program_.join_bytes, text_[i - 1], text_[i])) {
      byte_part({begin, i - begin, begin, false}, false);
      begin = i;
    }
  byte_part({begin, size - begin, begin, is_piece && begin == 0}, begin == 0);
}

void PieceEncoder::byte_part(const Stretch& s, bool looked_up) {
  if (!looked_up && look_up(s)) return;
  if (s.size >= WindowMerger::shortest) {
    const ByteSource source{text_ + s.begin, s.size, program_.byte_symbol};
    merge_in_windows(source, s.position, [&](std::uint32_t end) { return s.position + end; });
    return;
  }
  symbols_.resize(s.size);
  for (std::uint32_t i = 0; i < s.size; ++i) {
    symbols_[i].id = program_.byte_symbol[text_[s.begin + i]];
    symbols_[i].end = s.begin + i + 1;
  }
  merge_and_emit(&s, s.position);
}

// A piece with a byte that has no symbol: it vanishes and lets its neighbours meet. The reference counts lengths in its byte
// alphabet, where a byte is a character of one or two bytes of UTF-8.
void PieceEncoder::encode_incomplete_bytes(std::uint32_t size) {
  symbols_.clear();
  mapping_.clear();
  std::uint32_t position = 0;
  for (std::uint32_t i = 0; i < size; ++i) {
    const std::uint8_t byte = text_[i];
    const std::uint32_t length = byte >= '!' && byte <= '~' ? 1 : 2, symbol = program_.byte_symbol[byte];
    for (std::uint32_t k = 0; k < length; ++k) mapping_.push(i);
    if (symbol == TT_NONE) continue;
    position += length;
    symbols_.push({symbol, position, TT_NONE, TT_NONE});
  }
  mapped_ = mapping_.data();
  if (!symbols_.empty()) merge_and_emit(nullptr, 0);
}

// A piece of a model of code points.
void PieceEncoder::encode_characters(std::uint32_t size, bool is_piece) {
  const std::uint32_t unk = program_.conf[TT_CONF_UNK_ID];
  const bool fuse = program_.flag(TT_FLAG_FUSE_UNK) && !TOKTIER_FAULT(unknown_unfused);
  symbols_.clear();
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
        for (std::uint32_t k = 0; k < length; ++k) {
          const std::uint32_t from = TOKTIER_FAULT(fallback_symbol) && k > 0 && k + 1 == length ? k - 1 : k;
          push_symbol(program_.fallback[text_[i + from]], 1, i, false, Join::unknown);
        }
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
  close_part(is_piece && part_.position == 0 && part_.contiguous && part_.text_begin == 0 && part_.text_end == size);
}

void PieceEncoder::push_symbol(std::uint32_t symbol, std::uint32_t length, std::uint32_t text_begin, bool spelled, Join join) {
  if (!symbols_.empty()) {
    const TtSymbol last = symbols_[symbols_.size() - 1];
    if (program_.conf[TT_CONF_JOIN_KIND] != TT_JOIN_SYMBOLS)
      join = Join::yes;
    else if (join == Join::unknown)
      join = tt_symbols_join(program_.join_symbols, last.id, symbol) ? Join::yes : Join::no;
    if (join == Join::no) {
      close_part(false);
      part_.position = last.end;
      symbols_.clear();
    }
  }
  if (symbols_.empty()) {
    part_.text_begin = part_.text_end = text_begin;
    part_.contiguous = true;
  }
  const std::uint32_t position = symbols_.empty() ? part_.position : symbols_[symbols_.size() - 1].end;
  part_.contiguous = part_.contiguous && spelled && text_begin == part_.text_end;
  part_.text_end = text_begin + length;
  symbols_.push({symbol, position + length, TT_NONE, TT_NONE});
}

void PieceEncoder::close_part(bool is_piece) {
  if (symbols_.empty()) return;
  if (symbols_.size() == 1) {
    emit(symbols_[0].id, part_.position, symbols_[0].end);
    return;
  }
  const Stretch stretch{part_.text_begin, part_.text_end - part_.text_begin, part_.position, is_piece};
  if (part_.contiguous && !is_piece && look_up(stretch)) return;
  merge_and_emit(part_.contiguous ? &stretch : nullptr, part_.position);
}

std::size_t PieceEncoder::bytes() const { return symbols_.bytes() + mapping_.bytes() + heap_.bytes() + windows_.bytes(); }

void PieceEncoder::release() {
  symbols_.release();
  mapping_.release();
  heap_.release();
  windows_.release();
}

}  // namespace toktier
