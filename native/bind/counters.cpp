// `_native.take_counters`, in a build with TOKTIER_COUNTERS only: the engine's operation counts of the calling thread, and reset.
#include "bind/bind.h"
#include "engine/engine.h"

namespace nb = nanobind;

namespace toktier::bind {

void register_counters([[maybe_unused]] nb::module_& m) {
#ifdef TOKTIER_COUNTERS
  m.def("take_counters", [] {
    const Counters c = take_counters();
    nb::dict out;
    out["automaton_steps"] = c.automaton_steps;
    out["matcher_steps"] = c.matcher_steps;
    out["normalizer_steps"] = c.normalizer_steps;
    out["merge_steps"] = c.merge_steps;
    out["pair_probes"] = c.pair_probes;
    out["piece_probes"] = c.piece_probes;
    out["bytes_copied"] = c.bytes_copied;
    out["session_steps"] = c.session_steps;
    return out;
  });
#endif
}

}  // namespace toktier::bind
