// The two counters.
#include "speculative/copy_window.h"

#include <algorithm>

namespace toktier::speculative {

CopyWindow::CopyWindow(std::size_t start, std::size_t least, std::size_t most)
    : current_(std::clamp(start, least, most)), least_(least), most_(most) {}

void CopyWindow::record(std::size_t proposed, std::size_t accepted) {
  if (proposed == 0) return;
  if (accepted < proposed)
    current_ = std::max(current_ / 2, least_);
  else
    current_ = current_ > most_ / 2 ? most_ : current_ * 2;
}

bool MissBackoff::skip() {
  if (pause_ == 0) return false;
  --pause_;
  return true;
}

void MissBackoff::record(std::size_t proposed, std::size_t accepted) {
  if (proposed == 0) return;
  if (accepted > 0) {
    last_ = pause_ = 0;
    return;
  }
  last_ = last_ == 0 ? std::min<std::size_t>(1, cap_) : last_ > cap_ / 2 ? cap_ : last_ * 2;
  pause_ = last_;
}

}  // namespace toktier::speculative
