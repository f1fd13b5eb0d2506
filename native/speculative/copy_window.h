// How many tokens a copy may propose, and how long to propose nothing: both follow what the model made of the copies before.
// A fully accepted copy doubles the window, a broken one halves it; a copy of which nothing was accepted makes a pause that
// doubles with each in a row. Counts of tokens and rounds: no tokens here.
#pragma once
#include <cstddef>

namespace toktier::speculative {

class CopyWindow {
 public:
  // 1 <= least <= most, which the caller sees to; `start` is brought between them.
  CopyWindow(std::size_t start, std::size_t least, std::size_t most);
  std::size_t current() const { return current_; }
  // A copy of `proposed` tokens of which the first `accepted` were the model's. 0 proposed changes nothing.
  void record(std::size_t proposed, std::size_t accepted);

 private:
  std::size_t current_;
  const std::size_t least_, most_;
};

class MissBackoff {
 public:
  explicit MissBackoff(std::size_t cap) : cap_(cap) {}  // rounds; 0: never a pause
  std::size_t pause() const { return pause_; }          // rounds still to be passed over
  // Once a round: whether it is passed over.
  bool skip();
  // As CopyWindow::record. After the m-th miss in a row the pause is 2**(m-1) rounds, at most the cap.
  void record(std::size_t proposed, std::size_t accepted);

 private:
  const std::size_t cap_;
  std::size_t last_ = 0, pause_ = 0;  // last_: length of the last pause, 0 after a copy of which anything was accepted
};

}  // namespace toktier::speculative
