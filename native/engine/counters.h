// Operation counts of one thread, compiled in with TOKTIER_COUNTERS only: evidence that no step is worse than linear.
#pragma once
#include "engine.h"

#ifdef TOKTIER_COUNTERS
namespace toktier {
extern thread_local Counters thread_counters;
}
#define TOKTIER_COUNT(field, n) (::toktier::thread_counters.field += static_cast<std::uint64_t>(n))
#else
#define TOKTIER_COUNT(field, n) static_cast<void>(0)
#endif
