// Windows of bits from the boundaries that BoundaryScan lists.
#include "split_windows.h"

#include <algorithm>

#include "splitter.h"

namespace toktier {

struct WindowSplitter::State {
  State(const Program& p, Level l) : program(p), level(l) {}

  const Program& program;
  const Level level;
  const std::uint8_t* text = nullptr;
  std::uint32_t size = 0, at = 0;
  Scratch<std::uint8_t> right_states;
  std::unique_ptr<BoundaryScan> scan;
  BoundaryLot lot{};
  std::uint32_t taken = 0;
};

WindowSplitter::WindowSplitter(const Program& program, Level level) : state_(std::make_unique<State>(program, level)) {}
WindowSplitter::~WindowSplitter() = default;

void WindowSplitter::begin(const std::uint8_t* text, std::uint32_t size) {
  State& s = *state_;
  s.text = text;
  s.size = size;
  s.at = s.lot.count = s.taken = 0;
  s.scan.reset();
  if (s.program.boundary.n_class != 0 && size != 0)
    s.scan = std::make_unique<BoundaryScan>(s.program, text, size, s.program.boundary.n_token == 0, s.right_states);
}

bool WindowSplitter::next(SplitWindow& w) {
  State& s = *state_;
  if (s.at >= s.size) return false;
  w.begin = s.at;
  w.end = s.at = s.size - s.at < window_bytes ? s.size : s.at + window_bytes;
  const std::uint32_t words = w.words();
  std::fill_n(w.start, words, 0);
  std::fill_n(w.dropped, words, 0);
  std::fill_n(w.lead, words, 0);
  w.has_dropped = false;
  std::uint8_t all = 0;
  for (std::uint32_t i = w.begin; i < w.end; ++i) {
    all |= s.text[i];
    if (!tt_is_continuation(s.text[i])) w.lead[(i - w.begin) / 64] |= std::uint64_t{1} << (i % 64);
  }
  w.ascii = all < 0x80;
  if (w.begin == 0) w.start[0] = 1;
  while (s.scan != nullptr) {
    if (s.taken == s.lot.count) {
      s.taken = s.lot.count = 0;
      if (!s.scan->next(s.lot)) {
        s.scan.reset();
        break;
      }
    }
    const std::uint32_t position = s.lot.position[s.taken];
    if (position >= w.end) break;
    const std::uint64_t bit = std::uint64_t{1} << (position % 64);
    w.start[(position - w.begin) / 64] |= bit;
    if (s.lot.value[s.taken] == TT_BOUNDARY_DROPPED) {
      w.dropped[(position - w.begin) / 64] |= bit;
      w.has_dropped = true;
    }
    ++s.taken;
  }
  return true;
}

std::size_t WindowSplitter::bytes() const { return state_->right_states.bytes(); }
void WindowSplitter::release() { state_->right_states.release(); }

std::uint32_t list_bits(Level, const std::uint64_t* words, std::uint32_t count, std::uint32_t base, std::uint32_t* out) {
  std::uint32_t n = 0;
  for (std::uint32_t w = 0; w < count; ++w)
    for (std::uint64_t bits = words[w]; bits != 0; bits &= bits - 1)
      out[n++] = base + w * 64 + static_cast<std::uint32_t>(__builtin_ctzll(bits));
  return n;
}

}  // namespace toktier
