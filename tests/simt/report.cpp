// What a block says of a misuse, and of threads that wait for ever. The first report of a launch is the one that counts.
#include "report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "block.h"

namespace simt {
namespace {

constexpr tt_u32 MOST_WAITS = 4;  // that a report lists

// Text that ends where there is no more room.
class Sentence {
 public:
  Sentence(char* text, std::size_t bytes) : text_(text), bytes_(bytes) {}
  void add(const char* format, ...) __attribute__((format(printf, 2, 3))) {
    va_list arguments;
    va_start(arguments, format);
    add(format, arguments);
    va_end(arguments);
  }
  void add(const char* format, va_list arguments) {
    const int wanted = std::vsnprintf(text_ + used_, bytes_ - used_, format, arguments);
    if (wanted > 0) used_ = std::min(used_ + static_cast<std::size_t>(wanted), bytes_ - 1);
  }

 private:
  char* text_;
  std::size_t bytes_, used_ = 0;
};

void describe(Sentence& sentence, const Wait& wait) {
  if (!wait.somewhere())
    sentence.add("%s", wait.kind == Wait::ENDED ? "has ended" : "runs");
  else if (wait.kind == Wait::BARRIER)
    sentence.add("waits at the barrier in %s", Where(wait.place).text);
  else if (wait.kind == Wait::WARP)
    sentence.add("waits in %s in %s for the lanes 0x%08x", name_of(wait.operation), Where(wait.place).text, wait.lanes);
  else
    sentence.add("looks at a word in %s", Where(wait.place).text);
}

}  // namespace

Where::Where(Place place) {
  const char* const slash = std::strrchr(place.file, '/');
  std::snprintf(text, sizeof text, "%s:%u", slash != nullptr ? slash + 1 : place.file, place.line);
}

bool same(Place a, Place b) { return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0); }

const char* name_of(Operation operation) {
  static constexpr const char* names[] = {"tt_warp_barrier",  "tt_shuffle", "tt_shuffle_up",
                                          "tt_shuffle_down", "tt_ballot",  "tt_warp_min"};
  return names[static_cast<tt_u32>(operation)];
}

void Block::fail(Fiber& self, const char* format, ...) {
  if (!launch_.failing.exchange(true)) {
    Sentence sentence(launch_.report, sizeof launch_.report);
    sentence.add("kernel %s, block %u, thread %u (warp %u, lane %u) ", launch_.name, index_, self.index, self.index / TT_LANES,
                 self.index % TT_LANES);
    va_list arguments;
    va_start(arguments, format);
    sentence.add(format, arguments);
    va_end(arguments);
    launch_.failed = true;
  }
  self.context.leave_to(home_);
}

// One thread for each way of waiting.
void Block::report_waits(const char* what) {
  if (launch_.failing.exchange(true)) return;
  Sentence sentence(launch_.report, sizeof launch_.report);
  sentence.add("kernel %s, block %u: %s", launch_.name, index_, what);
  tt_u32 listed = 0;
  for (std::size_t i = 0; i < fibers_.size() && listed < MOST_WAITS; ++i) {
    const Wait& wait = fibers_[i]->wait;
    bool told = false;
    for (std::size_t j = 0; j < i && !told; ++j) {
      const Wait& other = fibers_[j]->wait;
      told = other.kind == wait.kind && (!wait.somewhere() || (other.lanes == wait.lanes && same(other.place, wait.place)));
    }
    if (told) continue;
    sentence.add("%s thread %zu ", listed++ == 0 ? ":" : ";", i);
    describe(sentence, wait);
  }
  launch_.failed = true;
}

}  // namespace simt
