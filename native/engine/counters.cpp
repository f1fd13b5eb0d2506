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

}  // namespace toktier
#endif
