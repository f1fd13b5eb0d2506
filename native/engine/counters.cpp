// The counters' storage; empty in an ordinary build.
#include "counters.h"

#ifdef TOKTIER_COUNTERS
namespace toktier {

thread_local Counters thread_counters{};

Counters take_counters() {
  const Counters taken = thread_counters;
  thread_counters = {};
  return taken;
}

void add_counters(const Counters& of_another) {
  Counters& all = thread_counters;
  all.automaton_steps += of_another.automaton_steps;
  all.matcher_steps += of_another.matcher_steps;
  all.normalizer_steps += of_another.normalizer_steps;
  all.merge_steps += of_another.merge_steps;
  all.pair_probes += of_another.pair_probes;
  all.piece_probes += of_another.piece_probes;
  all.bytes_copied += of_another.bytes_copied;
  all.session_steps += of_another.session_steps;
}

}  // namespace toktier
#endif
