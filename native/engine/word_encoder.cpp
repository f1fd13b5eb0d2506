// One window: look up, make what was missed, hand out. What is missed is looked for in the vocabulary first, in steps whose
// memory accesses overlap, then merged; a word that comes twice in a window is mostly found the second time, because what was
// missed is looked up once more when its turn comes.
#include "word_encoder.h"

#include <algorithm>

#include "counters.h"
#include "faults.h"

namespace toktier {

WordEncoder::WordEncoder(const Program& program, Level level, WindowSplitter& splitter, PieceEncoder& pieces,
                         std::uint32_t cache_lines)
    : program_(program),
      lanes_(word_lanes(level)),
      merging_(merge_lanes(level)),
      cutting_(cut_lanes(level)),
      splitter_(splitter),
      pieces_(pieces),
      merges_here_(program.byte_symbol != nullptr && program.all_bytes && program.pairs.displacement != nullptr &&
                   program.pieces.lines != nullptr && program.pieces.keys != nullptr),
      tables_{program.pairs, program.byte_symbol},
      level_(level),
      cache_(lanes_, cache_lines),
      long_words_(long_lanes(level), cache_lines == 0 ? 0 : std::max(cache_lines / 4, 2u)),
      part_kind_(program.flag(TT_FLAG_IGNORE_MERGES) ? word_part : word_piece),
      cuts_ascii_(program.byte_symbol == nullptr) {}

void WordEncoder::encode(const Segment& segment, Scratch<std::uint32_t>& ids) {
  segment_ = &segment;
  ids_ = &ids;
  queued_ = waiting_ = 0;
  marked_ = false;
  bound_.reserve(most_waiting);
  splitter_.begin(segment.text, segment.size);
  SplitWindow window;
  while (splitter_.next(window)) {
    take(window);
    if (waiting_ <= full) continue;
    const std::uint32_t open = waiting_ - 1;
    run(open);
    bound_[0] = bound_[TOKTIER_FAULT(run_border) ? open - 1 : open];
    if (TOKTIER_FAULT(window_span)) bound_[0] = window.end;
    if (marked_) mark_[0] = mark_[open];
    marked_ = marked_ && mark_[0] != word_piece;
    waiting_ = 1;
  }
  if (waiting_ == 0) return;
  bound_[waiting_] = segment.size;
  if (marked_) mark_[waiting_] = word_piece;
  run(waiting_);
}

// Appends the bounds of a window: its pieces, and cuts in them.
void WordEncoder::take(SplitWindow& window) {
  const std::uint32_t words = window.words(), first = waiting_;
  std::uint64_t cuts[window_words];
  const bool cut = program_.joins.pairs != nullptr && (!window.ascii || cuts_ascii_) &&
                   cutting_.cut(program_.joins, cuts_ascii_, segment_->text, segment_->size, window, cuts);
  if (!cut) {
    waiting_ += list_bits(level_, window.start, words, window.begin, bound_.data() + first);
    if (!marked_ && !window.has_dropped) return;
  } else {
    std::uint64_t bits[window_words];
    for (std::uint32_t i = 0; i < words; ++i) bits[i] = window.start[i] | cuts[i];
    waiting_ += list_bits(level_, bits, words, window.begin, bound_.data() + first);
    if (!marked_ && !window.has_dropped && part_kind_ == word_piece) return;
    prepare_marks(first);
    cutting_.mark(bits, cuts, words, part_kind_, mark_.data() + first);
  }
  if (!cut) {
    prepare_marks(first);
    std::fill(mark_.data() + first, mark_.data() + waiting_, word_piece);
  }
  if (window.has_dropped || (first > 0 && mark_[first - 1] == word_dropped)) mark_dropped(window, first);
}

void WordEncoder::prepare_marks(std::uint32_t first) {
  mark_.reserve(most_waiting);
  if (!marked_) std::fill_n(mark_.data(), first, word_piece);
  marked_ = true;
}

// A cut in a piece that is dropped is dropped too.
void WordEncoder::mark_dropped(const SplitWindow& window, std::uint32_t first) {
  bool dropped = first > 0 && mark_[first - 1] == word_dropped;
  for (std::uint32_t k = first; k < waiting_; ++k) {
    const std::uint32_t at = bound_[k] - window.begin;
    const auto has = [&](const std::uint64_t* bits) { return (bits[at / 64] >> (at % 64) & 1) != 0; };
    if (has(window.start)) dropped = window.drops(at);
    if (dropped) mark_[k] = word_dropped;
  }
}

void WordEncoder::run(std::uint32_t count) {
  TOKTIER_COUNT(piece_probes, count);
  if (count <= few && !marked_) {
    const WordWindow w{segment_->text, segment_->size, bound_.data(), nullptr, count, cache_.lines(), cache_.mask(),
                       nullptr,        nullptr,        nullptr,       0,       0};
    std::uint32_t* out = ids_->room(std::size_t{count} * inline_ids + 4);
    if (lanes_.emit_known(w, out)) {
      ids_->resize(static_cast<std::size_t>(out - ids_->data()));
      cache_.consider_growth(count, 0);
      return;
    }
  }
  value_.resize(count);
  missed_.resize(count + 1);
  longer_.resize(count + 1);
  many_.ids.clear();
  const std::uint8_t* kind = nullptr;
  if (marked_) {
    kind_.resize(count);
    const std::uint8_t* const mark = mark_.data();
    for (std::uint32_t k = 0; k < count; ++k) {
      const int part = (mark[k] | (TOKTIER_FAULT(word_part) ? 0 : mark[k + 1])) & word_part;  // it begins or ends at a cut
      kind_[k] = static_cast<std::uint8_t>(mark[k] == word_dropped ? int{word_dropped} : part);
    }
    kind = kind_.data();
  }
  WordWindow w{segment_->text, segment_->size,  bound_.data(), kind, count, cache_.lines(), cache_.mask(), value_.data(),
               missed_.data(), longer_.data(), 0, 0};
  lanes_.look_up(w);
  if (w.longer_count != 0) make_longer(w);
  if (w.missed_count != 0) {
    if (merges_here_)
      make_missed(w);
    else
      make_by_pieces(w);
  }
  merge_queued(w);
  emit(w);
  cache_.consider_growth(count, w.missed_count);
  long_words_.consider_growth();
}

void WordEncoder::put(WordValue& value, const std::uint32_t* ids, std::uint32_t count) {
  value.count = count;
  if (count <= inline_ids) {
    for (std::uint32_t i = 0; i < count; ++i) value.ids[i] = ids[i];
    return;
  }
  value.ids[0] = static_cast<std::uint32_t>(many_.ids.size());
  value.ids[2] = word_in_window;
  if (TOKTIER_FAULT(window_ids) && value.ids[0] > 0) --value.ids[0];
  many_.ids.append(ids, count);
}

// Puts the ids that were made behind `place` into the value.
void WordEncoder::put_made(WordValue& value, std::uint32_t place) {
  value.count = static_cast<std::uint32_t>(many_.ids.size()) - place;
  if (value.count <= inline_ids) {
    for (std::uint32_t k = 0; k < value.count; ++k) value.ids[k] = many_.ids[place + k];
  } else {
    value.ids[0] = place;
    value.ids[2] = word_in_window;
  }
}

void WordEncoder::make_by_pieces(const WordWindow& w) {
  for (std::uint32_t i = 0; i < w.missed_count; ++i) {
    const std::uint32_t span = w.missed[i], begin = w.bound[span], size = w.bound[span + 1] - begin;
    const auto place = static_cast<std::uint32_t>(many_.ids.size());
    WordKey key;
    std::uint32_t line;
    lanes_.list_keys(w, &span, 1, &key, &line);
    if (key.high != 0) pieces_.encode_word(w.text + begin, size, w.size - begin, is_part(w, span), many_);
    put_made(w.value[span], place);
    cache_.insert(key, line, many_.ids.data() + place, w.value[span].count);
  }
}

void WordEncoder::make_longer(WordWindow& w) {
  long_words_.look_up(w, many_.ids);
  for (std::uint32_t i = 0; i < w.longer_count; ++i) {
    const std::uint32_t span = w.longer[i], begin = w.bound[span], size = w.bound[span + 1] - begin;
    const std::uint8_t* const text = w.text + begin;
    const bool part = is_part(w, span);
    const LongWords::Found found = long_words_.find(text, size, part);
    if (found.ids != nullptr) {
      put(w.value[span], found.ids, found.count);
      continue;
    }
    if (merges_here_ && size <= longest_merged) {
      const std::uint32_t id = find_entry(text, size, part);
      if (id == TT_NONE) {
        queue(w, span, {}, 0);
        continue;
      }
      put(w.value[span], &id, 1);
      long_words_.remember(text, size, part, &id, 1);
      continue;
    }
    const auto place = static_cast<std::uint32_t>(many_.ids.size());
    pieces_.encode_word(text, size, w.size - begin, part, many_);
    const auto made = static_cast<std::uint32_t>(many_.ids.size()) - place;
    long_words_.remember(text, size, part, many_.ids.data() + place, made);
    put_made(w.value[span], place);
  }
}

// An entry that only ignore_merges reaches is not for parts.
bool WordEncoder::is_allowed(std::uint32_t id, bool part) const {
  return (!part && !TOKTIER_FAULT(ignore_merges_off)) || TOKTIER_FAULT(parts_as_pieces) ||
         (program_.token_flags[id] & TT_TOKEN_REACHABLE) != 0;
}

std::uint32_t WordEncoder::find_entry(const std::uint8_t* text, std::uint32_t size, bool part) const {
  if (size > program_.conf[TT_CONF_MAX_PIECE]) return TT_NONE;
  const std::uint32_t id = tt_find_piece(program_.pieces, text, size);
  return id != TT_NONE && is_allowed(id, part) ? id : TT_NONE;
}

void WordEncoder::make_missed(const WordWindow& w) {
  WordKey keys[most_found];
  std::uint32_t lines[most_found], spans[most_found], ids[most_found];
  for (std::uint32_t first = 0; first < w.missed_count; first += most_found) {
    const std::uint32_t end = std::min(first + most_found, w.missed_count);
    lanes_.list_keys(w, w.missed + first, end - first, keys, lines);
    std::uint32_t left = 0;
    for (std::uint32_t i = first; i < end; ++i) {
      const std::uint32_t span = w.missed[i];
      const WordKey key = keys[i - first];
      const std::uint32_t line = lines[i - first];
      if (key.high == 0) {
        w.value[span].count = 0;
      } else if (const WordValue* const known = cache_.find(key, line)) {
        w.value[span] = *known;
      } else {
        spans[left] = span;
        lines[left] = line;
        keys[left++] = key;
      }
    }
    lanes_.find_entries(program_.pieces, keys, left, ids);
    for (std::uint32_t k = 0; k < left; ++k) {
      if (ids[k] != TT_NONE && is_allowed(ids[k], keys[k].high >> 63 != 0)) {
        w.value[spans[k]] = {{ids[k], 0, 0}, 1};
        cache_.insert(keys[k], lines[k], &ids[k], 1);
      } else {
        queue(w, spans[k], keys[k], lines[k]);
      }
    }
  }
}

void WordEncoder::queue(const WordWindow& w, std::uint32_t span, const WordKey& key, std::uint32_t line) {
  queued_span_[queued_] = span;
  queued_key_[queued_] = key;
  queued_line_[queued_] = line;
  queue_[queued_].text = w.text + w.bound[span];
  queue_[queued_].size = w.bound[span + 1] - w.bound[span];
  if (++queued_ == batch) merge_queued(w);
}

void WordEncoder::merge_queued(const WordWindow& w) {
  if (queued_ == 0) return;
  merging_.merge(tables_, queue_, queued_);
  for (std::uint32_t i = 0; i < queued_; ++i) {
    const MergeWord& made = queue_[i];
    TOKTIER_COUNT(merge_steps, made.size);
    const std::uint32_t span = queued_span_[i];
    put(w.value[span], made.ids, made.count);
    if (made.size <= longest_word)
      cache_.insert(queued_key_[i], queued_line_[i], made.ids, made.count);
    else
      long_words_.remember(made.text, made.size, is_part(w, span), made.ids, made.count);
  }
  queued_ = 0;
}

void WordEncoder::emit(const WordWindow& w) {
  constexpr std::uint32_t at_once = 8;
  // Those of the window have their places in `many_`, each its own: there is room for all, and some may be read behind them.
  many_.ids.reserve(many_.ids.size() + at_once);
  const auto room = [&](std::uint32_t spans) { return ids_->room(std::size_t{spans} * inline_ids + many_.ids.size() + at_once); };
  std::uint32_t* out = room(w.count);
  const auto taken = [&] { ids_->resize(static_cast<std::size_t>(out - ids_->data())); };
  for (std::uint32_t from = 0; (from = lanes_.emit(w.value, from, w.count, out)) < w.count; ++from) {
    const WordValue& value = w.value[from];
    if (value.ids[2] == word_in_window) {
      const std::uint32_t* const made = many_.ids.data() + value.ids[0];
      if (value.count <= at_once)
        std::memcpy(out, made, at_once * sizeof *out);
      else
        std::memcpy(out, made, value.count * sizeof *out);
      out += value.count;
      continue;
    }
    taken();
    if (const std::uint32_t* const kept = cache_.in_ring(value)) {
      ids_->append(kept, value.count);
    } else {
      // Written over since: made again.
      const std::uint32_t begin = w.bound[from], size = w.bound[from + 1] - begin;
      again_.ids.clear();
      pieces_.encode_word(w.text + begin, size, w.size - begin, is_part(w, from), again_);
      ids_->append(again_.ids.data(), again_.ids.size());
      WordKey key;
      std::uint32_t line;
      lanes_.list_keys(w, &from, 1, &key, &line);
      cache_.insert(key, line, again_.ids.data(), static_cast<std::uint32_t>(again_.ids.size()));
    }
    out = room(w.count - from);
  }
  taken();
}

std::size_t WordEncoder::bytes() const {
  return bound_.bytes() + mark_.bytes() + kind_.bytes() + value_.bytes() + missed_.bytes() +
         longer_.bytes() + many_.ids.bytes() + again_.ids.bytes();
}

void WordEncoder::release() {
  bound_.release();
  mark_.release();
  kind_.release();
  value_.release();
  missed_.release();
  longer_.release();
  many_.ids.release();
  again_.ids.release();
}

}  // namespace toktier
