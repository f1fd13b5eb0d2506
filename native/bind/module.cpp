// toktier._native: the Python module. Computes nothing itself: it hands text to the engine and tables to the compiler.
#include <nanobind/nanobind.h>

NB_MODULE(_native, m) { m.attr("__doc__") = "Native engine of toktier (private: use the toktier package)."; }
