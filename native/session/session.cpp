// Where an edit begins, and what it leaves. Each step's reason:
// - Before an edit's first changed character, a cut is one still when it lies so far back that it looks at unchanged text alone
//   (`cut_reach` characters behind it). The beginning of the text is one always.
// - For an append it is the last cut, however near the end: more text adds cuts and takes none away.
// - Where the text is cut in what is new is decided on that alone: less text before a position takes cuts away and adds none.
#include "session/session.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "engine/counters.h"
#include "engine/cuts.h"
#include "engine/faults.h"

namespace toktier {

namespace {

constexpr std::size_t longest_character = 4;
// Memory of a prepared edit that is kept for the next one.
constexpr std::size_t kept_bytes = 1 << 16;

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

Position operator+(const Position& a, const Position& b) {
  return {a.bytes + b.bytes, a.code_points + b.code_points, a.tokens + b.tokens};
}

}  // namespace

Session::Session(std::shared_ptr<const Program> program, ContextPool& contexts)
    : program_(std::move(program)), contexts_(contexts), pending_(std::make_unique<Pending>()) {
  marks_.push(base_);
}

void Session::restore(Position final_end, std::string_view open_text, const std::uint32_t* open_ids, std::size_t n_open_ids) {
  text_.clear();
  ids_.clear();
  marks_.clear();
  text_.append(open_text.data(), open_text.size());
  ids_.append(open_ids, n_open_ids);
  base_ = open_ = final_end;
  marks_.push(base_);
  code_points_ = final_end.code_points + (TOKTIER_FAULT(session_restore) ? open_text.size() : count_code_points(open_text));
}

void Session::adopt(std::string_view text, const std::uint32_t* ids, const Position* cuts, std::size_t n_cuts) {
  if (base_.bytes == 0) return;
  Scratch<char> all_text;
  Scratch<std::uint32_t> all_ids;
  Scratch<Position> marks;
  all_text.reserve(text.size() + text_.size());
  all_text.append(text.data(), text.size());
  all_text.append(text_.data(), text_.size());
  all_ids.reserve(base_.tokens + ids_.size());
  all_ids.append(ids, base_.tokens);
  all_ids.append(ids_.data(), ids_.size());
  marks.push({});
  for (std::size_t i = 0; i < n_cuts; ++i)
    if (cuts[i].bytes > marks[marks.size() - 1].bytes && cuts[i].bytes < base_.bytes) marks.push(cuts[i]);
  marks.append(marks_.data(), marks_.size());
  base_ = {};
  text_ = std::move(all_text);
  ids_ = std::move(all_ids);
  marks_ = std::move(marks);
}

// The last place at which encoding may begin for an edit there.
const Position& Session::start_for(std::size_t begin_bytes, std::size_t begin_code_points) const {
  const auto holds = [&](const Position& p) {
    if (TOKTIER_FAULT(session_edit_reach)) return p.bytes <= begin_bytes;
    return p.bytes == 0 || p.code_points + cut_reach <= begin_code_points;
  };
  if (holds(open_)) return open_;
  const Position* const first = marks_.data();
  for (const Position* p = first + marks_.size(); p-- != first;) {
    TOKTIER_COUNT(session_steps, 1);
    if (holds(*p)) return *p;
  }
  throw NeedsText{base_.code_points + cut_reach};
}

// Whether the end of the text, where nothing is open, is a cut with `text` behind it; so is the beginning.
bool Session::begins_with_cut(std::string_view text) const {
  if (bytes() == 0) return true;
  const std::string_view held = held_text();
  const std::size_t before = std::min(held.size(), 2 * longest_character);
  const std::size_t behind = std::min(text.size(), cut_reach * longest_character);
  if (before == 0) return false;
  // At least the two characters before and the three behind that a cut depends on, and whole ones alone.
  char around[(2 + cut_reach) * longest_character];
  std::memcpy(around, held.data() + held.size() - before, before);
  std::memcpy(around + before, text.data(), behind);
  std::size_t first = 0, end = before + behind;
  while (first < before && is_continuation(around[first])) ++first;
  if (behind < text.size())
    while (end > before && is_continuation(text[end - before])) --end;
  const std::string_view whole(around + first, end - first);
  return cut_kind(*program_, whole, before - first, true) != 0;
}

// The last cut at `from` or behind it; 0 where there is none.
std::size_t Session::last_cut(std::string_view text, std::size_t from) const {
  for (std::size_t p = text.size(); p-- > std::max<std::size_t>(from, 1);) {
    TOKTIER_COUNT(session_steps, 1);
    if (TOKTIER_FAULT(session_cut) && !is_continuation(text[p])) return p;
    if (cut_kind(*program_, text, p, true) != 0) return p;
  }
  return 0;
}

void Session::prepare(Context& context, std::size_t begin_bytes, std::string_view text, unsigned workers) {
  Pending& p = *pending_;
  const bool appends = begin_bytes == bytes();
  if (appends && (open_.bytes < bytes() || begins_with_cut(text))) {
    p.begin = open_;
  } else {
    const Position& near = position_before(begin_bytes, &Position::bytes);
    const std::string_view between = held_text().substr(near.bytes - base_.bytes, begin_bytes - near.bytes);
    p.begin = start_for(begin_bytes, near.code_points + count_code_points(between));
  }
  p.old_bytes = begin_bytes - p.begin.bytes;
  p.text.clear();
  p.text.reserve(p.old_bytes + text.size());
  p.text.append(text_.data() + (p.begin.bytes - base_.bytes), p.old_bytes);
  p.text.append(text.data(), text.size());

  const std::string_view whole(p.text.data(), p.text.size());
  // Of the open text, an append makes new cuts near its end alone.
  constexpr std::size_t undecided = cut_reach * longest_character;
  const bool has_decided = appends && p.begin.bytes == open_.bytes && p.old_bytes > undecided;
  const std::size_t cut = last_cut(whole, has_decided ? p.old_bytes - undecided : 1);
  const bool continued = p.begin.bytes > 0;
  encode_span(*program_, contexts_, context, whole.substr(0, cut), continued, workers, p.made);
  Position made;
  if (cut > 0) made = p.made.marks.data()[p.made.marks.size() - 1];
  p.open = p.begin + made;

  const std::string_view rest = whole.substr(cut);
  EncodeOptions options;
  options.post_process = false;
  options.continued = !TOKTIER_FAULT(session_continued) && (continued || cut > 0);
  const std::size_t count = context.prepare(rest, options);
  context.write(p.made.ids.room(count));
  p.made.ids.advance(count);
  p.end = p.open + Position{rest.size(), count_code_points(rest), count};

  const std::uint32_t* const old_ids = ids_.data() + (p.begin.tokens - base_.tokens);
  const std::size_t least = std::min(p.made.ids.size(), tokens() - p.begin.tokens);
  const std::uint32_t* const new_ids = p.made.ids.data();
  p.keep = p.begin.tokens + static_cast<std::size_t>(std::mismatch(old_ids, old_ids + least, new_ids).first - old_ids);
  if (TOKTIER_FAULT(session_keep) && p.keep < tokens()) ++p.keep;
}

TokenPatch Session::patch() const {
  const Pending& p = *pending_;
  const std::size_t same = p.keep - p.begin.tokens;
  return {p.keep, p.made.ids.data() + same, p.made.ids.size() - same};
}

void Session::commit() {
  const Pending& p = *pending_;
  const std::size_t kept_text = p.begin.bytes - base_.bytes, kept_ids = p.keep - base_.tokens;
  const TokenPatch made = patch();
  text_.reserve(kept_text + p.text.size());
  ids_.reserve(kept_ids + made.count);
  marks_.reserve(marks_.size() + p.made.marks.size() + 1);
  TOKTIER_COUNT(session_steps, p.old_bytes + 2 * p.text.size() + made.count);
  // From here on nothing fails.
  text_.resize(kept_text);
  text_.append(p.text.data(), p.text.size());
  ids_.resize(kept_ids);
  ids_.append(made.ids, made.count);
  std::size_t n = marks_.size();
  while (n > 1 && marks_[n - 1].bytes > p.begin.bytes) --n;
  if (TOKTIER_FAULT(session_mark) && n < marks_.size()) ++n;
  marks_.resize(n);
  const auto mark = [&](const Position& at) {
    if (at.bytes >= marks_[marks_.size() - 1].bytes + block_near_end) marks_.push(at);
  };
  mark(p.begin);
  for (std::size_t i = 0; i + 1 < p.made.marks.size(); ++i) mark(p.begin + p.made.marks.data()[i]);
  open_ = p.open;
  code_points_ = p.end.code_points;
  fit(text_);
  fit(ids_);
  fit(marks_);
  discard();
}

void Session::discard() {
  if (pending_->text.bytes() + pending_->made.ids.bytes() <= kept_bytes) return;
  pending_->text.release();
  pending_->made.ids.release();
  pending_->made.marks.release();
}

// Gives back what a much longer text left; without memory for the shorter copy it stays.
template <typename T>
void Session::fit(Scratch<T>& data) {
  if (data.bytes() <= kept_bytes || data.size() * sizeof(T) * 4 > data.bytes()) return;
  try {
    Scratch<T> copy;
    TOKTIER_COUNT(session_steps, data.size());
    copy.append(data.data(), data.size());
    data = std::move(copy);
  } catch (const std::bad_alloc&) {
  }
}

void Session::abandon() {
  (void)pending_.release();
  pending_ = std::make_unique<Pending>();
}

// The last mark, or cut, whose `count` is not above `value`; the first one holds always.
const Position& Session::position_before(std::size_t value, std::size_t Position::*count) const {
  if (open_.*count <= value) return open_;
  const Position* const first = marks_.data();
  const Position* const behind =
      std::upper_bound(first, first + marks_.size(), value, [&](std::size_t v, const Position& p) { return v < p.*count; });
  if (behind == first) throw NeedsText{base_.code_points};
  return behind[-1];
}

std::size_t Session::byte_of(std::size_t code_point) const {
  const Position& near = position_before(code_point, &Position::code_points);
  TOKTIER_COUNT(session_steps, code_point - near.code_points);
  std::size_t at = near.bytes - base_.bytes;
  for (std::size_t left = code_point - near.code_points; left > 0; --left)
    for (++at; at < text_.size() && is_continuation(text_.data()[at]);) ++at;
  return base_.bytes + at;
}

std::size_t Session::common_prefix(std::size_t from_bytes, std::string_view text) const {
  const std::string_view held = held_text().substr(from_bytes - base_.bytes);
  const std::size_t least = std::min(held.size(), text.size());
  constexpr std::size_t stride = 1 << 12;
  std::size_t at = 0;
  while (at + stride <= least &&
         (TOKTIER_FAULT(session_prefix) || std::memcmp(held.data() + at, text.data() + at, stride) == 0))
    at += stride;
  while (at < least && held[at] == text[at]) ++at;
  while (at > 0 && at < text.size() && is_continuation(text[at])) --at;
  return at;
}

std::size_t Session::memory() const {
  return sizeof *this + text_.bytes() + ids_.bytes() + marks_.bytes() + pending_->text.bytes() + pending_->made.ids.bytes() +
         pending_->made.marks.bytes();
}

}  // namespace toktier
