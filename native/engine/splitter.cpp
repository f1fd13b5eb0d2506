// The loops around the step functions of kernels/shared/boundary.h.
#include "splitter.h"

#include "counters.h"
#include "segment.h"
#include "split_windows.h"

namespace toktier {

BoundaryScan::BoundaryScan(const Program& program, const std::uint8_t* text, std::uint32_t size, bool two_pass,
                           Scratch<std::uint8_t>& right_states)
    : program_(program), text_(text), size_(size), two_pass_(two_pass), right_(nullptr) {
  const TtBoundary& b = program.boundary;
  if (!two_pass) {
    state_ = b.token_start * b.n_class;
    return;
  }
  state_ = b.left_start;
  right_states.clear();
  std::uint8_t* states = right_states.room(size);
  std::uint32_t right = b.right_end, characters = 0;
  for (std::uint32_t i = size; i > 0;) {
    std::uint32_t length;
    right = tt_right_step(b, right, tt_class(b, tt_utf8_previous(text + i, length)));
    states[characters++] = static_cast<std::uint8_t>(right);
    i -= length;
  }
  TOKTIER_COUNT(automaton_steps, characters);
  right_ = states + characters;
}

bool BoundaryScan::next(BoundaryLot& lot) {
  if (done_) return false;
  const std::uint32_t before = lot.count;
  if (two_pass_)
    second_pass(lot);
  else
    one_pass(lot);
  return lot.count != before;
}

void BoundaryScan::one_pass(BoundaryLot& lot) {
  const TtBoundary& b = program_.boundary;
  const std::uint32_t* const steps = program_.steps.data();
  const std::uint8_t* const ascii = program_.ascii_class;
  const std::uint8_t* const text = text_;
  const std::size_t size = size_;
  std::size_t i = at_, row = state_;
  std::uint32_t count = lot.count;
  TtPending pending = pending_;
  const auto sink = [&](std::size_t position, std::uint32_t value) {
    lot.position[count] = static_cast<std::uint32_t>(position);
    lot.value[count++] = static_cast<std::uint8_t>(value);
  };
  const auto act = [&](std::uint32_t action) {
    if (action == TT_BOUNDARY)  // nothing is pending then: boundaries come out in order
      sink(i, TT_BOUNDARY);
    else
      tt_token_action(action, static_cast<tt_u32>(i), pending, sink);
  };
  [[maybe_unused]] std::size_t characters = 0;
  while (i < size && count <= boundary_lot - TT_MAX_PENDING - 1) {
    const std::size_t run = i;
    std::uint32_t action = 0;
    std::uint8_t byte = 0;
    while (i < size && (byte = text[i]) < 0x80) {  // the run of ASCII characters that decide nothing
      const std::uint32_t step = steps[row + ascii[byte]];
      row = step >> 8;
      action = step & 0xFF;
      if (action != 0) break;
      ++i;
    }
    characters += i - run;
    if (i >= size) break;
    std::uint32_t length = 1;
    if (byte >= 0x80) {
      const std::uint32_t step = steps[row + tt_class(b, tt_utf8_next(text + i, length))];
      row = step >> 8;
      action = step & 0xFF;
    }
    if (action != 0) act(action);
    i += length;
    ++characters;
  }
  TOKTIER_COUNT(automaton_steps, characters);
  at_ = static_cast<std::uint32_t>(i);
  state_ = static_cast<std::uint32_t>(row);
  if (i >= size && count <= boundary_lot - TT_MAX_PENDING) {
    tt_token_end(b.token_end[row / b.n_class], pending, sink);
    done_ = true;
  }
  pending_ = pending;
  lot.count = count;
}

void BoundaryScan::second_pass(BoundaryLot& lot) {
  const TtBoundary& b = program_.boundary;
  std::uint32_t i = at_, left = state_, count = lot.count;
  while (i < size_ && count < boundary_lot) {
    const std::uint32_t value = tt_boundary_value(b, left, *--right_);
    if (value != TT_NO_BOUNDARY) {
      lot.position[count] = i;
      lot.value[count++] = static_cast<std::uint8_t>(value);
    }
    std::uint32_t length;
    left = tt_left_step(b, left, tt_class(b, tt_utf8_next(text_ + i, length)));
    i += length;
    TOKTIER_COUNT(automaton_steps, 1);
  }
  at_ = i;
  state_ = left;
  done_ = i >= size_;
  lot.count = count;
}

void split(const Program& program, std::string_view segment, SplitForm form, Level level, std::vector<std::uint32_t>& boundaries,
           std::vector<std::uint8_t>& dropped) {
  boundaries.clear();
  dropped.clear();
  if (segment.size() > longest_text) throw TextError{0, "the text is longer than 4 GiB"};
  std::uint8_t current = 0;
  const auto add = [&](std::uint32_t position, bool drop) {
    if (position != 0) {
      boundaries.push_back(position);
      dropped.push_back(current);
    }
    current = drop;
  };
  if (form == SplitForm::windows) {
    WindowSplitter splitter(program, level);
    const auto window = std::make_unique<SplitWindow>();
    std::vector<std::uint32_t> positions(window_bytes + 16);
    splitter.begin(reinterpret_cast<const std::uint8_t*>(segment.data()), static_cast<std::uint32_t>(segment.size()));
    while (splitter.next(*window)) {
      const std::uint32_t count = list_bits(level, window->start, window->words(), 0, positions.data());
      for (std::uint32_t k = 0; k < count; ++k) add(window->begin + positions[k], window->drops(positions[k]));
    }
  } else if (program.boundary.n_class != 0 && !segment.empty()) {
    Scratch<std::uint8_t> right_states;
    const bool two_pass = form == SplitForm::two_pass || program.boundary.n_token == 0;
    BoundaryScan scan(program, reinterpret_cast<const std::uint8_t*>(segment.data()), static_cast<std::uint32_t>(segment.size()),
                      two_pass, right_states);
    BoundaryLot lot;
    while (lot.count = 0, scan.next(lot))
      for (std::uint32_t k = 0; k < lot.count; ++k) add(lot.position[k], lot.value[k] == TT_BOUNDARY_DROPPED);
  }
  dropped.push_back(current);
}

}  // namespace toktier
