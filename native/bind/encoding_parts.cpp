// Encodings of parts that come from elsewhere: from_ids for other engines, pickling and copying.
#include <vector>

#include "bind/encoding.h"
#include "bind/errors.h"
#include "bind/ids.h"

namespace toktier::bind {

namespace {

bool take_offsets(PyObject* object, std::size_t count, std::vector<Offset>& out) {
  const Ref items(PySequence_Tuple(object));
  if (!items) return false;
  if (std::size_t(PyTuple_GET_SIZE(items.get())) != count)
    return PyErr_SetString(PyExc_ValueError, "there must be one offset for each id"), false;
  out.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Ref pair(PySequence_Tuple(PyTuple_GET_ITEM(items.get(), Py_ssize_t(i))));
    if (!pair) return false;
    Offset offset;
    if (PyTuple_GET_SIZE(pair.get()) != 2) return PyErr_SetString(PyExc_ValueError, "an offset is a pair (start, end)"), false;
    const unsigned long begin = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(pair.get(), 0));
    const unsigned long end = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLong(PyTuple_GET_ITEM(pair.get(), 1));
    if (PyErr_Occurred()) return false;
    if (begin > 0xFFFFFFFFul || end > 0xFFFFFFFFul)
      return PyErr_SetString(PyExc_ValueError, "an offset is beyond 2**32 - 1"), false;
    offset.begin = std::uint32_t(begin);
    offset.end = std::uint32_t(end);
    out.push_back(offset);
  }
  return true;
}

Ref take_tokens(PyObject* object, Py_ssize_t count) {
  const Ref items(PySequence_Tuple(object));
  if (!items) return Ref();
  if (PyTuple_GET_SIZE(items.get()) != count)
    return PyErr_SetString(PyExc_ValueError, "there must be one token for each id"), Ref();
  Ref tokens(PyTuple_New(count));
  for (Py_ssize_t i = 0; tokens && i < count; ++i) {
    PyObject* token = PyTuple_GET_ITEM(items.get(), i);
    PyObject* exact = PyUnicode_CheckExact(token) ? Py_NewRef(token) : PyUnicode_FromObject(token);  // TypeError unless a str
    if (exact == nullptr) return Ref();
    PyTuple_SET_ITEM(tokens.get(), i, exact);
  }
  return tokens;
}

}  // namespace

PyObject* encoding_from_ids(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"ids", "offsets", "tokens", "backend", nullptr};
  PyObject *ids = nullptr, *offsets = Py_None, *tokens = Py_None, *backend = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOU:from_ids", const_cast<char**>(names), &ids, &offsets, &tokens, &backend))
    return nullptr;
  try {
    std::vector<std::uint32_t> taken;
    if (!take_ids(ids, taken)) return nullptr;
    std::vector<Offset> spans;
    if (offsets != Py_None && !take_offsets(offsets, taken.size(), spans)) return nullptr;
    Ref strings = tokens == Py_None ? Ref() : take_tokens(tokens, Py_ssize_t(taken.size()));
    if (tokens != Py_None && !strings) return nullptr;
    Ref name(backend == nullptr ? PyUnicode_InternFromString("hf") : PyUnicode_FromObject(backend));
    if (!name) return nullptr;
    Ref made(new_encoding(taken.data(), taken.size(), offsets == Py_None ? nullptr : &spans, nullptr, nullptr, {}));
    if (!made) return nullptr;
    EncodingObject* e = as_encoding(made.get());
    e->tokens = strings.release();
    Py_SETREF(e->backend, name.release());
    return made.release();
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
}

// A pickle stands without the text and the program, so that offsets and tokens go along, as in the reference's.
PyObject* encoding_reduce(PyObject* self, PyObject*) {
  EncodingObject* e = as_encoding(self);
  const bool native = e->program != nullptr;
  const Ref make(PyObject_GetAttrString(reinterpret_cast<PyObject*>(encoding_type), "_restore"));
  const Ref ids(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(e->ids), e->count * Py_ssize_t(sizeof(std::uint32_t))));
  if (!make || !ids) return nullptr;
  Ref offsets = Ref::borrow(Py_None), tokens = Ref::borrow(Py_None);
  if (native || e->offsets != nullptr) {
    if (!need_offsets(e)) return nullptr;
    offsets = Ref(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(e->offsets), e->count * Py_ssize_t(sizeof(Offset))));
  }
  if (native || e->tokens != nullptr) tokens = Ref(encoding_tokens(e));
  if (!offsets || !tokens) return nullptr;
  return Py_BuildValue("O(OOOO)", make.get(), ids.get(), offsets.get(), tokens.get(), e->backend);
}

PyObject* encoding_restore(PyObject*, PyObject* args) {
  PyObject *ids, *offsets, *tokens, *backend;
  if (!PyArg_ParseTuple(args, "SOOU:_restore", &ids, &offsets, &tokens, &backend)) return nullptr;
  const Py_ssize_t count = PyBytes_GET_SIZE(ids) / Py_ssize_t(sizeof(std::uint32_t));
  const bool spans = offsets != Py_None;
  if (PyBytes_GET_SIZE(ids) % Py_ssize_t(sizeof(std::uint32_t)) != 0 ||
      (spans && (!PyBytes_Check(offsets) || PyBytes_GET_SIZE(offsets) != count * Py_ssize_t(sizeof(Offset)))))
    return PyErr_SetString(PyExc_ValueError, "this is no pickled Encoding"), nullptr;
  Ref strings = tokens == Py_None ? Ref() : take_tokens(tokens, count);
  if (tokens != Py_None && !strings) return nullptr;
  Ref name(PyUnicode_FromObject(backend));
  // The contents of bytes objects are aligned for 32-bit integers (their header is a multiple of 8 bytes).
  Ref made(name ? new_encoding(reinterpret_cast<const std::uint32_t*>(PyBytes_AS_STRING(ids)), std::size_t(count), nullptr,
                               nullptr, nullptr, {})
                : nullptr);
  if (!made) return nullptr;
  EncodingObject* e = as_encoding(made.get());
  if (spans && !set_offsets(e, reinterpret_cast<const Offset*>(PyBytes_AS_STRING(offsets)))) return nullptr;
  e->tokens = strings.release();
  Py_SETREF(e->backend, name.release());
  return made.release();
}

}  // namespace toktier::bind
