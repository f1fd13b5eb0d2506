// toktier._native: the Python module. Computes nothing itself: it hands text to the engine and tables to the compiler.
#include "bind/bind.h"

NB_MODULE(_native, m) {
  m.attr("__doc__") = "Native engine of toktier (private: use the toktier package).";
  toktier::bind::register_compile(m);
}
