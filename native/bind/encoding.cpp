// The Encoding type: sequence, buffer, lazy offsets and tokens, comparison. How one is made of parts: encoding_parts.cpp.
#include "bind/encoding.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "bind/engine_call.h"
#include "bind/errors.h"
#include "bind/ids.h"

namespace toktier::bind {

PyTypeObject* encoding_type = nullptr;

namespace {

PyObject* native_name = nullptr;

EncodingObject* allocate(std::size_t inside) {
  if (inside > std::size_t(PY_SSIZE_T_MAX) / sizeof(std::uint32_t) - 64) return PyErr_NoMemory(), nullptr;
  auto* e = PyObject_NewVar(EncodingObject, encoding_type, Py_ssize_t(inside));
  if (e == nullptr) return nullptr;
  e->ids = e->inside;
  e->count = Py_ssize_t(inside);
  e->offsets = nullptr;
  e->batch = e->program = e->text = e->tokens = nullptr;
  e->backend = Py_NewRef(native_name);
  e->options = {};
  return e;
}

void dealloc(PyObject* self) {
  EncodingObject* e = as_encoding(self);
  PyTypeObject* type = Py_TYPE(self);
  std::free(e->offsets);
  Py_XDECREF(e->batch);
  Py_XDECREF(e->program);
  Py_XDECREF(e->text);
  Py_XDECREF(e->tokens);
  Py_XDECREF(e->backend);
  type->tp_free(self);
  Py_DECREF(type);
}

// Runs the text again into `caller`, with offsets or surfaces. `before`: how many ids of this encoding stand before the
// result's, as a row of a padded batch is longer than its text alone gives. Differing ids are an error: never a wrong offset.
bool run_again(const EncodingObject* e, const ProgramOwner& owner, bool offsets, Caller& caller, std::size_t& before) {
  std::size_t bytes = 0;
  EncodeOptions options;
  options.add_special_tokens = e->options.add_special_tokens;
  options.plain = e->options.plain;
  options.offsets = offsets;
  options.surfaces = !offsets;
  if (!encode_text(owner, e->text, options, caller, bytes)) return false;
  const std::vector<std::uint32_t>& ids = caller.result.ids;
  const std::size_t n = std::size_t(e->count);
  before = owner.facts().pad_left != 0 && n > ids.size() ? n - ids.size() : 0;
  if (ids.size() <= n && std::equal(ids.begin(), ids.end(), e->ids + before)) return true;
  return set_internal_error("encoding the same text again gave other ids"), false;
}

bool make_offsets(EncodingObject* e) {
  if (e->offsets != nullptr) return true;
  if (e->program == nullptr) return set_unsupported_config("this Encoding was made from ids alone: it has no offsets"), false;
  const ProgramOwner* owner = program_of(e->program);
  if (owner == nullptr) return false;
  CallerLease caller(*owner);
  std::size_t before = 0;
  if (!run_again(e, *owner, true, *caller, before)) return false;
  if (e->offsets != nullptr) return true;  // another thread was first
  std::vector<Offset> padded(std::size_t(e->count), Offset{0, 0});
  std::copy(caller->result.offsets.begin(), caller->result.offsets.end(), padded.begin() + std::ptrdiff_t(before));
  return set_offsets(e, padded.data());
}

PyObject* str_of(std::string_view utf8) { return PyUnicode_DecodeUTF8(utf8.data(), Py_ssize_t(utf8.size()), nullptr); }

// A new list of the strings of all ids; some are replaced by what the text read there.
PyObject* native_tokens(const EncodingObject* e) {
  const ProgramOwner* owner = program_of(e->program);
  if (owner == nullptr) return nullptr;
  CallerLease caller(*owner);
  std::size_t before = 0;
  if (owner->facts().n_added == 0)
    caller->result.surfaces.clear();
  else if (!run_again(e, *owner, false, *caller, before))
    return nullptr;
  const std::vector<Surface>& surfaces = caller->result.surfaces;
  auto surface = surfaces.begin();
  Ref list(PyList_New(e->count));
  for (Py_ssize_t i = 0; list && i < e->count; ++i) {
    const bool differs = surface != surfaces.end() && surface->index + before == std::size_t(i);
    PyObject* token = str_of(differs ? std::string_view(surface->text) : token_string(owner->program(), e->ids[i]).value_or(""));
    if (token == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), i, token);
    surface += differs;
  }
  return list.release();
}

PyObject* get_ids(PyObject* self, void*) { return list_of_ids(as_encoding(self)->ids, as_encoding(self)->count); }

PyObject* get_offsets(PyObject* self, void*) {
  EncodingObject* e = as_encoding(self);
  if (!need_offsets(e)) return nullptr;
  Ref list(PyList_New(e->count));
  for (Py_ssize_t i = 0; list && i < e->count; ++i) {
    Ref pair(PyTuple_New(2)), begin(PyLong_FromUnsignedLong(e->offsets[i].begin)),
        end(PyLong_FromUnsignedLong(e->offsets[i].end));
    if (!pair || !begin || !end) return nullptr;
    PyTuple_SET_ITEM(pair.get(), 0, begin.release());
    PyTuple_SET_ITEM(pair.get(), 1, end.release());
    PyList_SET_ITEM(list.get(), i, pair.release());
  }
  return list.release();
}

PyObject* get_tokens(PyObject* self, void*) { return encoding_tokens(as_encoding(self)); }

PyObject* get_backend(PyObject* self, void*) { return Py_NewRef(as_encoding(self)->backend); }

Py_ssize_t length(PyObject* self) { return as_encoding(self)->count; }

PyObject* item(PyObject* self, Py_ssize_t i) {
  const EncodingObject* e = as_encoding(self);
  if (i < 0 || i >= e->count) return PyErr_SetString(PyExc_IndexError, "Encoding index out of range"), nullptr;
  return PyLong_FromUnsignedLong(e->ids[i]);
}

PyObject* subscript(PyObject* self, PyObject* key) {
  const EncodingObject* e = as_encoding(self);
  if (PyIndex_Check(key)) {
    const Py_ssize_t i = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (i == -1 && PyErr_Occurred()) return nullptr;
    return item(self, i < 0 ? i + e->count : i);
  }
  if (!PySlice_Check(key))
    return PyErr_Format(PyExc_TypeError, "Encoding indices must be integers or slices, not %.100s", Py_TYPE(key)->tp_name),
           nullptr;
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(key, &start, &stop, &step) != 0) return nullptr;
  const Py_ssize_t n = PySlice_AdjustIndices(e->count, &start, &stop, step);
  if (step == 1) return list_of_ids(e->ids + start, n);
  Ref list(PyList_New(n));
  for (Py_ssize_t k = 0; list && k < n; ++k) {
    PyObject* id = PyLong_FromUnsignedLong(e->ids[start + k * step]);
    if (id == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), k, id);
  }
  return list.release();
}

int contains(PyObject* self, PyObject* value) {
  const EncodingObject* e = as_encoding(self);
  if (!PyLong_Check(value)) return 0;
  int overflow = 0;
  const long long id = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (id == -1 && PyErr_Occurred()) return -1;
  if (overflow != 0 || id < 0 || id > 0xFFFFFFFFll) return 0;
  return std::find(e->ids, e->ids + e->count, std::uint32_t(id)) != e->ids + e->count;
}

// 1 equal, 0 not, -1 error. The items are those of a snapshot: comparing one may run any code.
int equals_sequence(const EncodingObject* e, PyObject* other) {
  if (PySequence_Size(other) != e->count) return PyErr_Occurred() ? -1 : 0;
  const Ref items(PySequence_Tuple(other));
  if (!items) return -1;
  if (PyTuple_GET_SIZE(items.get()) != e->count) return 0;
  for (Py_ssize_t i = 0; i < e->count; ++i) {
    PyObject* value = PyTuple_GET_ITEM(items.get(), i);
    const Ref id(PyLong_FromUnsignedLong(e->ids[i]));
    if (!id) return -1;
    const int equal = PyObject_RichCompareBool(id.get(), value, Py_EQ);
    if (equal != 1) return equal;
  }
  return 1;
}

PyObject* compare(PyObject* self, PyObject* other, int operation) {
  if (operation != Py_EQ && operation != Py_NE) Py_RETURN_NOTIMPLEMENTED;
  const EncodingObject* e = as_encoding(self);
  int equal;
  if (is_encoding(other)) {
    const EncodingObject* o = as_encoding(other);
    equal = e->count == o->count && std::equal(e->ids, e->ids + e->count, o->ids);
  } else if (PyList_Check(other) || PyTuple_Check(other)) {
    equal = equals_sequence(e, other);
  } else {
    Py_RETURN_NOTIMPLEMENTED;
  }
  if (equal < 0) return nullptr;
  return PyBool_FromLong(operation == Py_EQ ? equal : !equal);
}

PyObject* repr(PyObject* self) {
  const EncodingObject* e = as_encoding(self);
  constexpr Py_ssize_t shown = 8;
  const Ref first(list_of_ids(e->ids, std::min(e->count, shown)));
  const Ref text(first ? PyObject_Repr(first.get()) : nullptr);
  if (!text) return nullptr;
  if (e->count <= shown) return PyUnicode_FromFormat("Encoding(%U, backend=%R)", text.get(), e->backend);
  const Ref open(PyUnicode_Substring(text.get(), 0, PyUnicode_GET_LENGTH(text.get()) - 1));
  return open ? PyUnicode_FromFormat("Encoding(%U, ...], %zd ids, backend=%R)", open.get(), e->count, e->backend) : nullptr;
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  static char format[] = "I";
  static Py_ssize_t stride = sizeof(std::uint32_t);
  EncodingObject* e = as_encoding(self);
  view->obj = nullptr;
  if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE) return PyErr_SetString(PyExc_BufferError, "an Encoding is read-only"), -1;
  view->buf = const_cast<std::uint32_t*>(e->ids);
  view->len = e->count * Py_ssize_t(sizeof(std::uint32_t));
  view->itemsize = sizeof(std::uint32_t);
  view->readonly = 1;
  view->ndim = 1;
  view->format = (flags & PyBUF_FORMAT) == PyBUF_FORMAT ? format : nullptr;
  view->shape = (flags & PyBUF_ND) == PyBUF_ND ? &e->count : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? &stride : nullptr;
  view->suboffsets = nullptr;
  view->internal = nullptr;
  view->obj = Py_NewRef(self);
  return 0;
}

PyObject* size_of(PyObject* self, PyObject*) {
  const EncodingObject* e = as_encoding(self);
  const std::size_t offsets = e->offsets == nullptr ? 0 : std::size_t(e->count) * sizeof(Offset);
  return PyLong_FromSize_t(offsetof(EncodingObject, inside) + std::size_t(Py_SIZE(self)) * sizeof(std::uint32_t) + offsets);
}

PyMethodDef methods[] = {
    {"from_ids", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(encoding_from_ids)),
     METH_VARARGS | METH_KEYWORDS | METH_STATIC, "An encoding that another engine made."},
    {"_restore", encoding_restore, METH_VARARGS | METH_STATIC, "For pickle."},
    {"__reduce__", encoding_reduce, METH_NOARGS, "For pickle."},
    {"__sizeof__", size_of, METH_NOARGS, "Size in bytes, without text and program."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {
    {"ids", get_ids, nullptr, "A new list of the ids.", nullptr},
    {"offsets", get_offsets, nullptr, "A new list of (start, end), in code points of the text.", nullptr},
    {"tokens", get_tokens, nullptr, "A new list of the token strings.", nullptr},
    {"backend", get_backend, nullptr, "Which engine served.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_doc, const_cast<char*>("Ids of one text: an immutable sequence of int and a read-only buffer of uint32.")},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_tp_repr, reinterpret_cast<void*>(repr)},
    {Py_tp_richcompare, reinterpret_cast<void*>(compare)},
    {Py_tp_hash, reinterpret_cast<void*>(PyObject_HashNotImplemented)},
    {Py_tp_iter, reinterpret_cast<void*>(PySeqIter_New)},
    {Py_sq_length, reinterpret_cast<void*>(length)},
    {Py_sq_item, reinterpret_cast<void*>(item)},
    {Py_sq_contains, reinterpret_cast<void*>(contains)},
    {Py_mp_length, reinterpret_cast<void*>(length)},
    {Py_mp_subscript, reinterpret_cast<void*>(subscript)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
    {0, nullptr}};

PyType_Spec spec = {"toktier._native.Encoding", int(offsetof(EncodingObject, inside)), sizeof(std::uint32_t),
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_SEQUENCE,
                    slots};

}  // namespace

PyObject* native_backend() { return native_name; }

bool set_offsets(EncodingObject* e, const Offset* offsets) {
  const std::size_t n = std::size_t(e->count);
  auto* copy = static_cast<Offset*>(std::malloc(std::max<std::size_t>(n, 1) * sizeof(Offset)));
  if (copy == nullptr) return PyErr_NoMemory(), false;
  if (n != 0) std::memcpy(copy, offsets, n * sizeof(Offset));
  e->offsets = copy;
  return true;
}

bool need_offsets(EncodingObject* e) {
  try {
    return make_offsets(e);
  } catch (...) {
    return set_from_current_exception(), false;
  }
}

PyObject* encoding_tokens(const EncodingObject* e) {
  if (e->tokens != nullptr) return PySequence_List(e->tokens);
  if (e->program == nullptr) return set_unsupported_config("this Encoding was made from ids alone: it has no tokens"), nullptr;
  try {
    return native_tokens(e);
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
}

PyObject* new_encoding(const std::uint32_t* ids, std::size_t count, const std::vector<Offset>* offsets, PyObject* program,
                       PyObject* text, CallOptions options) {
  Ref made(reinterpret_cast<PyObject*>(allocate(count)));
  if (!made) return nullptr;
  EncodingObject* e = as_encoding(made.get());
  if (count != 0) std::memcpy(e->inside, ids, count * sizeof(std::uint32_t));
  if (offsets != nullptr && !set_offsets(e, offsets->data())) return nullptr;
  e->program = Py_XNewRef(program);
  e->text = Py_XNewRef(text);
  e->options = options;
  return made.release();
}

PyObject* new_encoding(std::size_t count, PyObject* program, PyObject* text, CallOptions options, std::uint32_t*& ids) {
  EncodingObject* const e = allocate(count);
  if (e == nullptr) return nullptr;
  e->program = Py_XNewRef(program);
  e->text = Py_XNewRef(text);
  e->options = options;
  ids = e->inside;
  return reinterpret_cast<PyObject*>(e);
}

PyObject* new_encoding_within(const IdsAround& around, std::size_t inner, PyObject* program, PyObject* text, CallOptions options,
                              std::uint32_t*& ids) {
  PyObject* const made = new_encoding(around.n_before + inner + around.n_after, program, text, options, ids);
  if (made == nullptr) return nullptr;
  ids = std::copy_n(around.before, around.n_before, ids);
  std::copy_n(around.after, around.n_after, ids + inner);
  return made;
}

PyObject* new_encoding_row(PyObject* batch, const std::uint32_t* ids, std::size_t count, PyObject* program, PyObject* text,
                           CallOptions options) {
  Ref made(reinterpret_cast<PyObject*>(allocate(0)));
  if (!made) return nullptr;
  EncodingObject* e = as_encoding(made.get());
  e->ids = ids;
  e->count = Py_ssize_t(count);
  e->batch = Py_NewRef(batch);
  e->program = Py_XNewRef(program);
  e->text = Py_XNewRef(text);
  e->options = options;
  return made.release();
}

bool register_encoding(PyObject* module) {
  if (native_name == nullptr) native_name = PyUnicode_InternFromString("fast_cpu");
  if (encoding_type == nullptr) encoding_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return native_name != nullptr && encoding_type != nullptr &&
         PyModule_AddObjectRef(module, "Encoding", reinterpret_cast<PyObject*>(encoding_type)) == 0;
}

}  // namespace toktier::bind
