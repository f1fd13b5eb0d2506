// Tokens and numbers that callers of native/speculative give.
#include <cstring>

#include "bind/errors.h"
#include "bind/ids.h"
#include "bind/speculative.h"

namespace toktier::bind {

namespace {

// The last n of an exact list or tuple, where they are exact ints within range; runs nobody's code. 1, 0 fewer, -1 otherwise.
int take_last_of_list(PyObject* object, std::size_t n, std::uint32_t* out) {
  if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object)) return -1;
  const std::size_t size = std::size_t(PySequence_Fast_GET_SIZE(object));
  if (size < n) return 0;
  PyObject* const* const items = PySequence_Fast_ITEMS(object) + (size - n);
  for (std::size_t i = 0; i < n; ++i) {
    int overflow = 0;
    const long long id = PyLong_CheckExact(items[i]) ? PyLong_AsLongLongAndOverflow(items[i], &overflow) : -1;
    if (overflow != 0 || id < 0 || id > 0xFFFFFFFFll) return -1;
    out[i] = std::uint32_t(id);
  }
  return 1;
}

// The last n of a uint32 buffer: 1, 0 fewer, -1 it is no such buffer.
int take_last_of_buffer(PyObject* object, std::size_t n, std::uint32_t* out) {
  Py_buffer view;
  if (!PyObject_CheckBuffer(object)) return -1;
  if (PyObject_GetBuffer(object, &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) return PyErr_Clear(), -1;
  const int taken = !is_id_buffer(view) ? -1 : std::size_t(view.len) / sizeof *out < n ? 0 : 1;
  if (taken == 1) std::memcpy(out, static_cast<const char*>(view.buf) + view.len - n * sizeof *out, n * sizeof *out);
  PyBuffer_Release(&view);
  return taken;
}

int take_last_of_lookup(LookupOwner& owner, std::size_t n, std::uint32_t* out) {
  const Locked held(owner.mutex);
  const auto history = owner.lookup.history();
  if (history.size() < n) return 0;
  std::memcpy(out, history.data() + history.size() - n, n * sizeof *out);
  return 1;
}

// Not of a deque, say: those are read whole.
bool has_slices(PyObject* object) {
  const PyMappingMethods* const items = Py_TYPE(object)->tp_as_mapping;
  return PySequence_Check(object) && items != nullptr && items->mp_subscript != nullptr && !PyUnicode_Check(object) &&
         !PyBytes_Check(object) && !PyByteArray_Check(object);
}

}  // namespace

bool take_tokens(PyObject* object, std::vector<std::uint32_t>& out) {
  LookupOwner* const owner = lookup_of(object);
  if (owner == nullptr) return take_ids(object, out);
  const Locked held(owner->mutex);
  out.assign(owner->lookup.history().begin(), owner->lookup.history().end());
  return true;
}

int take_last_tokens(PyObject* object, std::size_t n, std::uint32_t* out) {
  const int of_list = take_last_of_list(object, n, out);
  if (of_list >= 0) return of_list;
  if (LookupOwner* const owner = lookup_of(object)) return take_last_of_lookup(*owner, n, out);
  const int of_buffer = take_last_of_buffer(object, n, out);
  if (of_buffer >= 0) return of_buffer;
  if (!has_slices(object)) {
    std::vector<std::uint32_t> all;
    if (!take_ids(object, all)) return -1;
    if (all.size() < n) return 0;
    std::memcpy(out, all.data() + all.size() - n, n * sizeof *out);
    return 1;
  }
  const Py_ssize_t size = PySequence_Size(object), first = size - Py_ssize_t(n);
  if (size < 0) return -1;
  if (first < 0) return 0;
  const Ref slice(PySequence_GetSlice(object, first, size));
  const Ref items(slice ? PySequence_Tuple(slice.get()) : nullptr);
  if (!items) return -1;
  if (PyTuple_GET_SIZE(items.get()) != Py_ssize_t(n)) return 0;  // it was changed meanwhile
  for (std::size_t i = 0; i < n; ++i)
    if (!take_id(PyTuple_GET_ITEM(items.get(), Py_ssize_t(i)), first + Py_ssize_t(i), out[i])) return -1;
  return 1;
}

Py_ssize_t take_count(PyObject* object, const char* name, std::size_t least) {
  if (PyBool_Check(object) || !PyIndex_Check(object))
    return PyErr_Format(PyExc_TypeError, "%s must be an integer, not %.100s", name, Py_TYPE(object)->tp_name), -1;
  const Py_ssize_t n = PyNumber_AsSsize_t(object, nullptr);
  if (n == -1 && PyErr_Occurred()) return -1;
  if (n >= 0) return n;
  const std::string expected = ": expected " + std::to_string(least) + " or more";
  return set_config_invalid((std::string(name) + " is " + std::to_string(n) + expected).c_str(), nullptr), -1;
}

}  // namespace toktier::bind
