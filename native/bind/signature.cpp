// Keywords are told apart by address first: callers mostly pass interned names.
#include "bind/signature.h"

namespace toktier::bind {

namespace {

bool bind_keyword(const Signature& s, PyObject* name, PyObject* value, PyObject** out) {
  for (int exact = 0; exact < 2; ++exact)
    for (Py_ssize_t k = 0; k < s.count; ++k) {
      PyObject* known = *s.names[k];
      if (exact == 0 ? known != name : PyUnicode_Compare(known, name) != 0) continue;
      if (out[k] != nullptr)
        return PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", s.method, name), false;
      out[k] = value;
      return true;
    }
  if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", s.method, name);
  return false;
}

}  // namespace

bool bind_arguments(const Signature& s, PyObject* const* args, Py_ssize_t n, PyObject* keywords, PyObject** out) {
  if (n > s.positional)
    return PyErr_Format(PyExc_TypeError, "%s() takes at most %zd positional arguments but %zd were given", s.method,
                        s.positional, n),
           false;
  for (Py_ssize_t k = 0; k < n; ++k) out[k] = args[k];
  for (Py_ssize_t k = 0; keywords != nullptr && k < PyTuple_GET_SIZE(keywords); ++k)
    if (!bind_keyword(s, PyTuple_GET_ITEM(keywords, k), args[n + k], out)) return false;
  if (out[0] == nullptr) return PyErr_Format(PyExc_TypeError, "%s() is missing the argument '%U'", s.method, *s.names[0]), false;
  return true;
}

bool intern(std::initializer_list<Interned> names) {
  for (const Interned& entry : names)
    if (*entry.slot == nullptr && (*entry.slot = PyUnicode_InternFromString(entry.name)) == nullptr) return false;
  return true;
}

}  // namespace toktier::bind
