// A window in three steps: a class a character, what the local rules say of each position, and the token automaton where
// they say nothing. The automaton starts near the position, where two classes tell its state or where it stopped last, and
// so reads few characters; past the end of the window it reads on only while a position of the window is pending.
#include "split_windows.h"

#include <algorithm>
#include <cstring>

#include "counters.h"
#include "faults.h"
#include "splitter.h"

namespace toktier {

namespace {

constexpr std::uint32_t before = 3, behind = 1;  // classes around those of the window, as the rules want them
constexpr std::uint32_t slack = 64;              // vectors read and write so far behind them

// Whether an action says of a position that a piece starts there.
bool emits(std::uint32_t action) { return (action & 0b01010100) != 0 || (action & 3) == 1 || (action & 3) == 2; }

void set_bit(std::uint64_t* words, std::uint32_t k) { words[k / 64] |= std::uint64_t{1} << (k % 64); }

// End of the run of equal bytes that p[from] begins, at most `end`; up to 8 bytes behind `end` are read.
std::uint32_t end_of_run(const std::uint8_t* p, std::uint32_t from, std::uint32_t end) {
  const std::uint64_t same = 0x0101010101010101u * p[from];
  for (std::uint32_t k = from; k < end; k += 8) {
    std::uint64_t bytes;
    std::memcpy(&bytes, p + k, 8);
    if (bytes != same) {
      while (k < end && p[k] == p[from]) ++k;
      return k;
    }
  }
  return end;
}

}  // namespace

struct WindowSplitter::State {
  State(const Program& p, Level l) : program(p), tables(p.split), lanes(split_lanes(l)) {}

  void scan_window(SplitWindow& w);
  void rule_window(SplitWindow& w);
  void settle(SplitWindow& w, std::uint64_t* start, std::uint64_t* dropped);
  void go_near(std::uint32_t to);
  template <typename Sink>
  void run(std::uint32_t beyond, Sink&& sink);
  void run_ahead(SplitWindow& w);
  void emit(SplitWindow& w, std::uint32_t position, std::uint32_t value);

  const Program& program;
  const SplitProgram& tables;
  const SplitLanes& lanes;
  const std::uint8_t* text = nullptr;
  std::uint32_t size = 0, at = 0;
  std::uint32_t count = 0, behind_at = 0;  // characters of the window, and the byte where the first one behind it begins

  // The token automaton stands before the character at byte `known_at`, which is never before the next window. While a window
  // is settled, `first` is that character in it, and pending positions are characters of it.
  std::uint32_t known_at = 0, first = 0, row = 0;
  TtPending pending{};
  // Found past the end of a window: what was pending there, and the position that decided it.
  struct Late {
    std::uint32_t position, value;
  };
  Late late[2 * (TT_MAX_PENDING + 1)];
  std::uint32_t late_count = 0;

  alignas(64) std::uint8_t stream[before + window_bytes + behind + slack];
  alignas(64) std::uint64_t by_character[2][window_words + 1];
  alignas(64) std::uint64_t undecided[window_words + 1];

  // Programs without rules.
  Scratch<std::uint8_t> right_states;
  std::unique_ptr<BoundaryScan> scan;
  std::unique_ptr<BoundaryLot> lot;
  std::uint32_t taken = 0;
};

WindowSplitter::WindowSplitter(const Program& program, Level level) : state_(std::make_unique<State>(program, level)) {}
WindowSplitter::~WindowSplitter() = default;

void WindowSplitter::begin(const std::uint8_t* text, std::uint32_t size) {
  State& s = *state_;
  s.text = text;
  s.size = size;
  s.at = 0;
  if (s.tables.usable) {
    std::memset(s.stream, static_cast<int>(s.program.boundary.n_class), before);
    s.known_at = s.late_count = s.pending.count = 0;
    s.row = s.program.boundary.token_start * s.program.boundary.n_class;
    return;
  }
  s.scan.reset();
  if (s.program.boundary.n_class == 0 || size == 0) return;
  if (s.lot == nullptr) s.lot = std::make_unique<BoundaryLot>();
  s.taken = s.lot->count = 0;
  s.scan = std::make_unique<BoundaryScan>(s.program, text, size, s.program.boundary.n_token == 0, s.right_states);
}

bool WindowSplitter::next(SplitWindow& w) {
  State& s = *state_;
  if (s.at >= s.size) return false;
  w.begin = s.at;
  w.end = s.at = s.size - s.at <= window_bytes ? s.size : s.at + window_bytes;
  w.has_dropped = false;
  if (s.tables.usable)
    s.rule_window(w);
  else
    s.scan_window(w);
  if (w.begin == 0) w.start[0] |= 1;
  return true;
}

void WindowSplitter::State::rule_window(SplitWindow& w) {
  const std::uint32_t words = w.words();
  const bool last = w.end == size;
  count = lanes.classify(tables.lanes, text, w.begin, w.end, size, stream + before, w.lead, w.ascii);
  TOKTIER_COUNT(automaton_steps, count);
  behind_at = w.end;
  while (behind_at < size && tt_is_continuation(text[behind_at])) ++behind_at;
  std::uint32_t length;
  stream[before + count] = static_cast<std::uint8_t>(
      behind_at == size ? program.boundary.n_class : tt_class(program.boundary, tt_utf8_next(text + behind_at, length)));
  std::uint64_t* const start = w.ascii ? w.start : by_character[0];
  std::uint64_t* const dropped = w.ascii ? w.dropped : by_character[1];
  const std::uint32_t facts = lanes.decide(tables.lanes, stream, count, start, dropped, undecided);
  w.has_dropped = (facts & 2) != 0;
  const bool whole = last && (facts & 1) == 0 && known_at == w.begin && pending.count == 0;
  if (!whole && known_at < w.end) settle(w, start, dropped);
  if (!w.ascii) {
    const std::uint32_t filled = (count + 63) / 64;
    start[filled] = dropped[filled] = 0;
    lanes.spread(start, w.lead, words, w.start);
    if (tables.drops) lanes.spread(dropped, w.lead, words, w.dropped);
  }
  if (whole) return;
  run_ahead(w);
  std::uint32_t kept = 0;
  for (std::uint32_t k = 0; k < late_count; ++k)
    if (late[k].position < w.end)
      emit(w, late[k].position, late[k].value);
    else
      late[kept++] = late[k];
  late_count = kept;
  std::memmove(stream, stream + count, before);
}

void WindowSplitter::State::emit(SplitWindow& w, std::uint32_t position, std::uint32_t value) {
  if (position >= w.end) {
    late[late_count++] = {position, value};
    return;
  }
  set_bit(w.start, position - w.begin);
  if (value != TT_BOUNDARY_DROPPED) return;
  set_bit(w.dropped, position - w.begin);
  w.has_dropped = true;
}

// Undecided positions of the window, and where the automaton stands at its end.
void WindowSplitter::State::settle(SplitWindow& w, std::uint64_t* start, std::uint64_t* dropped) {
  const auto index_of = [&](std::uint32_t byte) {
    const std::uint32_t k = byte - w.begin;
    if (w.ascii) return k;
    std::uint32_t index = 0;
    for (std::uint32_t word = 0; word < k / 64; ++word) index += static_cast<std::uint32_t>(__builtin_popcountll(w.lead[word]));
    if (k % 64 != 0)
      index += static_cast<std::uint32_t>(__builtin_popcountll(w.lead[k / 64] & ((std::uint64_t{1} << (k % 64)) - 1)));
    return index;
  };
  const auto byte_of = [&](std::uint32_t index) {
    if (w.ascii) return w.begin + index;
    for (std::uint32_t word = 0;; ++word) {
      std::uint64_t bits = w.lead[word];
      const auto here = static_cast<std::uint32_t>(__builtin_popcountll(bits));
      if (index >= here) {
        index -= here;
        continue;
      }
      for (; index > 0; --index) bits &= bits - 1;
      return w.begin + word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(bits));
    }
  };
  const auto sink = [&](std::uint32_t position, std::uint32_t value) {
    set_bit(start, position);
    if (value != TT_BOUNDARY_DROPPED) return;
    set_bit(dropped, position);
    w.has_dropped = true;
  };
  first = index_of(known_at);
  for (std::uint32_t k = 0; k < pending.count; ++k) pending.at[k] = index_of(pending.at[k]);
  if (pending.count != 0) run(first, sink);
  while (first < count) {
    std::uint32_t word = first / 64;
    std::uint64_t open = undecided[word] & ~std::uint64_t{0} << (first % 64);
    while (open == 0 && ++word * 64 < count) open = undecided[word];
    if (open == 0) break;
    const std::uint32_t position = word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(open));
    go_near(position);
    run(position, sink);
  }
  if (w.end == size) {
    if (first == count) tt_token_end(program.boundary.token_end[row / program.boundary.n_class], pending, sink);
    pending.count = 0;
  } else {
    go_near(count);
    run(count, sink);
  }
  for (std::uint32_t k = 0; k < pending.count; ++k) pending.at[k] = byte_of(pending.at[k]);
  known_at = behind_at;
  if (TOKTIER_FAULT(window_state)) row = program.boundary.token_start * program.boundary.n_class, pending.count = 0;
}

// The automaton is brought to a character at or before `to` where its state is known.
void WindowSplitter::State::go_near(std::uint32_t to) {
  if (pending.count != 0) return;
  const std::uint32_t n = program.boundary.n_class + 1;
  for (std::uint32_t k = to; k > first; --k) {
    const std::uint32_t found = tables.known[stream[k + before - 2] * n + stream[k + before - 1]];
    if (found == 0) continue;
    first = k;
    row = found - 1;
    return;
  }
}

// Reads the window from `first` on until it has read character `beyond` and nothing is pending, or the window ends.
template <typename Sink>
void WindowSplitter::State::run(std::uint32_t beyond, Sink&& sink) {
  const std::uint32_t* const steps = program.steps.data();
  const std::uint8_t* const classes = stream + before;
  std::uint32_t k = first, state = row;
  [[maybe_unused]] const std::uint32_t from = k;
  while (k < count && (k <= beyond || pending.count != 0)) {
    const std::uint32_t step = steps[state + classes[k]], action = step & 0xFF, next = step >> 8;
    if (action != 0) tt_token_action(action, k, pending, sink);
    if (next == state && k > first && classes[k] == classes[k - 1] && !emits(action)) {
      // The same again and again until the run ends. Positions that stay pending stay so; those that come and go are replaced
      // within as many steps as there can be, so that the last steps of the run make up for all.
      const std::uint32_t end = end_of_run(classes, k, count);
      if (end > k + 2 + TT_MAX_PENDING) k = end - (TOKTIER_FAULT(run_skip) ? 0 : 1 + TT_MAX_PENDING);
    }
    state = next;
    ++k;
  }
  TOKTIER_COUNT(automaton_steps, k - from);
  first = k;
  row = state;
}

// Past the end of the window, until no position of the window is pending.
void WindowSplitter::State::run_ahead(SplitWindow& w) {
  const auto sink = [&](std::uint32_t position, std::uint32_t value) { emit(w, position, value); };
  while (pending.count != 0 && pending.at[0] < w.end) {
    if (known_at >= size || TOKTIER_FAULT(window_ahead)) {
      tt_token_end(program.boundary.token_end[row / program.boundary.n_class], pending, sink);
      if (TOKTIER_FAULT(window_ahead)) row = program.boundary.token_start * program.boundary.n_class, pending.count = 0;
      return;
    }
    std::uint32_t length;
    const std::uint32_t step = program.steps[row + tt_class(program.boundary, tt_utf8_next(text + known_at, length))];
    if ((step & 0xFF) != 0) tt_token_action(step & 0xFF, known_at, pending, sink);
    row = step >> 8;
    known_at += length;
    TOKTIER_COUNT(automaton_steps, 1);
  }
}

void WindowSplitter::State::scan_window(SplitWindow& w) {
  const std::uint32_t words = w.words();
  std::fill_n(w.start, words, 0);
  std::fill_n(w.dropped, words, 0);
  std::fill_n(w.lead, words, 0);
  w.ascii = true;
  for (std::uint32_t i = w.begin; i < w.end; ++i) {
    if (text[i] >= 0x80) w.ascii = false;
    if (!tt_is_continuation(text[i])) set_bit(w.lead, i - w.begin);
  }
  while (scan != nullptr) {
    if (taken == lot->count) {
      taken = lot->count = 0;
      if (!scan->next(*lot)) {
        scan.reset();
        break;
      }
    }
    if (lot->position[taken] >= w.end) break;
    emit(w, lot->position[taken], lot->value[taken]);
    ++taken;
  }
}

std::size_t WindowSplitter::bytes() const { return state_->right_states.bytes(); }
void WindowSplitter::release() { state_->right_states.release(); }

std::uint32_t list_bits(Level level, const std::uint64_t* words, std::uint32_t count, std::uint32_t base, std::uint32_t* out) {
  return split_lanes(level).list(words, count, base, out);
}

}  // namespace toktier
