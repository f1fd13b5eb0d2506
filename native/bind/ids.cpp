// Reads ids from Python objects and makes lists of them.
#include "bind/ids.h"

#include <cstring>

#include "bind/errors.h"

namespace toktier::bind {

namespace {

// 1: taken · 0: not such a buffer.
int take_buffer(PyObject* object, std::vector<std::uint32_t>& out) {
  if (!PyObject_CheckBuffer(object)) return 0;
  Py_buffer view;
  if (PyObject_GetBuffer(object, &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) {
    PyErr_Clear();
    return 0;
  }
  const bool fits = is_id_buffer(view);
  if (fits) {
    const auto* ids = static_cast<const std::uint32_t*>(view.buf);
    out.assign(ids, ids + view.len / 4);
  }
  PyBuffer_Release(&view);
  return fits ? 1 : 0;
}

}  // namespace

bool is_id_buffer(const Py_buffer& view) {
  const char* format = view.format == nullptr ? "B" : view.format;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  return view.ndim == 1 && view.itemsize == 4 && std::strcmp(format, "I") == 0;
}

bool take_id(PyObject* object, Py_ssize_t index, std::uint32_t& out) {
  const Ref number(PyBool_Check(object) ? nullptr : PyNumber_Index(object));  // a flag is no id
  if (number) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(number.get(), &overflow);
    if (overflow == 0 && value >= 0 && value <= 0xFFFFFFFFll) {
      out = std::uint32_t(value);
      return true;
    }
  } else if (PyErr_Occurred() != nullptr && !PyErr_ExceptionMatches(PyExc_TypeError)) {
    return false;
  }
  set_invalid_token(object, index);
  return false;
}

bool take_ids(PyObject* object, std::vector<std::uint32_t>& out) {
  out.clear();
  if (take_buffer(object, out) != 0) return true;
  if (PyUnicode_Check(object) || PyBytes_Check(object) || PyByteArray_Check(object)) {
    PyErr_Format(PyExc_TypeError, "expected integers, not %.100s; raw ids are memoryview(...).cast(\"I\")",
                 Py_TYPE(object)->tp_name);
    return false;
  }
  if (Py_TYPE(object)->tp_iter == nullptr && !PySequence_Check(object)) {
    PyErr_Format(PyExc_TypeError, "expected integers, not %.100s", Py_TYPE(object)->tp_name);
    return false;
  }
  const Ref sequence(PySequence_Tuple(object));  // a snapshot: __index__ of an item may run any code
  if (!sequence) return false;
  const Py_ssize_t n = PyTuple_GET_SIZE(sequence.get());
  out.reserve(std::size_t(n));
  for (Py_ssize_t i = 0; i < n; ++i) {
    std::uint32_t id;
    if (!take_id(PyTuple_GET_ITEM(sequence.get(), i), i, id)) return false;
    out.push_back(id);
  }
  return true;
}

PyObject* list_of_ids(const std::uint32_t* ids, Py_ssize_t n) {
  Ref list(PyList_New(n));
  for (Py_ssize_t i = 0; list && i < n; ++i) {
    PyObject* id = PyLong_FromUnsignedLong(ids[i]);
    if (id == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), i, id);
  }
  return list.release();
}

}  // namespace toktier::bind
