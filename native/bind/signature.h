// Arguments of methods that are called with vectorcall, bound to their names without a tuple or a dict between.
#pragma once
#include <initializer_list>

#include "bind/bind.h"

namespace toktier::bind {

// Signature of one method: `positional` of the names may be given by place, the first one must be.
struct Signature {
  const char* method;
  PyObject* const* names[6];
  Py_ssize_t count, positional;
};

// Borrowed references into `out`, null where not given. False with TypeError set.
bool bind_arguments(const Signature& s, PyObject* const* args, Py_ssize_t n, PyObject* keywords, PyObject** out);

// Interns names, once; each into its slot. False with an error set.
struct Interned {
  PyObject** slot;
  const char* name;
};
bool intern(std::initializer_list<Interned> names);

// For the table of methods: the calling convention stands in its flags.
template <typename F>
PyCFunction erased(F* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace toktier::bind
