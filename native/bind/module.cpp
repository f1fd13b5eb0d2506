// toktier._native: the Python module. Computes nothing itself: it hands text to the engine and tables to the compiler.
#include "bind/bind.h"

NB_MODULE(_native, m) {
  // At the end of a process a thread that is left behind in a call still holds its program: nothing to report to a user.
  nanobind::set_leak_warnings(false);
  using namespace toktier::bind;
  if (PyInterpreterState_Get() != PyInterpreterState_Main())
    throw nanobind::import_error("toktier._native works in the main interpreter only: its types belong to one");
  m.attr("__doc__") = "Native engine of toktier (private: use the toktier package).";
  register_compile(m);
  register_program(m);
  register_counters(m);
  register_faults(m);
  register_coverage(m);
  register_boundary_mutants(m);
  register_build_facts(m);
  register_gpu_tables(m);
  register_gpu_abi(m);
  register_arguments(m);
  register_gpu(m);
  register_prefix_cache(m);
  register_speculative_parts(m);
  if (!register_encoding(m.ptr()) || !register_encoding_batch(m.ptr()) || !register_encoder(m.ptr()) ||
      !register_session(m.ptr()) || !register_shared_token_cache(m.ptr()))
    throw nanobind::python_error();
}
