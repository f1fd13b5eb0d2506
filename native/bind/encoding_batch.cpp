// The EncodingBatch type, and the exporter behind the memoryviews of its two arrays.
#include "bind/encoding_batch.h"

#include <cstdlib>
#include <cstring>

#include "bind/errors.h"

namespace toktier::bind {

PyTypeObject* encoding_batch_type = nullptr;

namespace {

// Exports one array of a batch: memoryview needs an object to ask, and a batch has two arrays.
struct ColumnObject {
  PyObject_HEAD
  PyObject* batch;
  const void* data;
  Py_ssize_t count, item_size;
  const char* format;
};

PyTypeObject* column_type = nullptr;

void column_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(reinterpret_cast<ColumnObject*>(self)->batch);
  type->tp_free(self);
  Py_DECREF(type);
}

int column_buffer(PyObject* self, Py_buffer* view, int flags) {
  auto* c = reinterpret_cast<ColumnObject*>(self);
  view->obj = nullptr;
  if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE) return PyErr_SetString(PyExc_BufferError, "an EncodingBatch is read-only"), -1;
  view->buf = const_cast<void*>(c->data);
  view->len = c->count * c->item_size;
  view->itemsize = c->item_size;
  view->readonly = 1;
  view->ndim = 1;
  view->format = (flags & PyBUF_FORMAT) == PyBUF_FORMAT ? const_cast<char*>(c->format) : nullptr;
  view->shape = (flags & PyBUF_ND) == PyBUF_ND ? &c->count : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? &c->item_size : nullptr;
  view->suboffsets = nullptr;
  view->internal = nullptr;
  view->obj = Py_NewRef(self);
  return 0;
}

PyType_Slot column_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(column_dealloc)},
                              {Py_bf_getbuffer, reinterpret_cast<void*>(column_buffer)},
                              {0, nullptr}};
PyType_Spec column_spec = {"toktier._native._Column", sizeof(ColumnObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, column_slots};

PyObject* view_of(PyObject* batch, const void* data, Py_ssize_t count, Py_ssize_t item_size, const char* format) {
  auto* column = PyObject_New(ColumnObject, column_type);
  if (column == nullptr) return nullptr;
  column->batch = Py_NewRef(batch);
  column->data = data;
  column->count = count;
  column->item_size = item_size;
  column->format = format;
  const Ref owner(reinterpret_cast<PyObject*>(column));
  return PyMemoryView_FromObject(owner.get());
}

void dealloc(PyObject* self) {
  EncodingBatchObject* b = as_batch(self);
  PyTypeObject* type = Py_TYPE(self);
  std::free(b->ids);
  std::free(b->row_splits);
  Py_XDECREF(b->program);
  Py_XDECREF(b->texts);
  Py_XDECREF(b->encodings);
  Py_XDECREF(b->backend);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* get_ids(PyObject* self, void*) {
  return view_of(self, as_batch(self)->ids, as_batch(self)->total, sizeof(std::uint32_t), "I");
}

PyObject* get_row_splits(PyObject* self, void*) {
  return view_of(self, as_batch(self)->row_splits, as_batch(self)->rows + 1, sizeof(std::uint64_t), "Q");
}

PyObject* get_backend(PyObject* self, void*) { return Py_NewRef(as_batch(self)->backend); }

Py_ssize_t length(PyObject* self) { return as_batch(self)->rows; }

PyObject* item(PyObject* self, Py_ssize_t i) {
  const EncodingBatchObject* b = as_batch(self);
  if (i < 0 || i >= b->rows) return PyErr_SetString(PyExc_IndexError, "EncodingBatch index out of range"), nullptr;
  if (b->encodings != nullptr) return Py_NewRef(PyTuple_GET_ITEM(b->encodings, i));
  const std::uint64_t begin = b->row_splits[i];
  PyObject* const row = new_encoding_row(self, b->ids + begin, std::size_t(b->row_splits[i + 1] - begin), b->program,
                                         PyTuple_GET_ITEM(b->texts, i), b->options);
  if (row != nullptr) Py_SETREF(as_encoding(row)->backend, Py_NewRef(b->backend));
  return row;
}

PyObject* subscript(PyObject* self, PyObject* key) {
  const EncodingBatchObject* b = as_batch(self);
  if (PyIndex_Check(key)) {
    const Py_ssize_t i = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (i == -1 && PyErr_Occurred()) return nullptr;
    return item(self, i < 0 ? i + b->rows : i);
  }
  if (!PySlice_Check(key))
    return PyErr_Format(PyExc_TypeError, "EncodingBatch indices must be integers or slices, not %.100s", Py_TYPE(key)->tp_name),
           nullptr;
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(key, &start, &stop, &step) != 0) return nullptr;
  const Py_ssize_t n = PySlice_AdjustIndices(b->rows, &start, &stop, step);
  Ref list(PyList_New(n));
  for (Py_ssize_t k = 0; list && k < n; ++k) {
    PyObject* row = item(self, start + k * step);
    if (row == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), k, row);
  }
  return list.release();
}

PyObject* repr(PyObject* self) {
  const EncodingBatchObject* b = as_batch(self);
  return PyUnicode_FromFormat("EncodingBatch(%zd texts, %zd ids, backend=%R)", b->rows, b->total, b->backend);
}

PyObject* from_encodings(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"encodings", "backend", nullptr};
  PyObject *encodings, *backend = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|U:from_encodings", const_cast<char**>(names), &encodings, &backend))
    return nullptr;
  Ref rows(PySequence_Tuple(encodings));
  if (!rows) return nullptr;
  const Py_ssize_t n = PyTuple_GET_SIZE(rows.get());
  std::size_t total = 0;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* row = PyTuple_GET_ITEM(rows.get(), i);
    if (!is_encoding(row))
      return PyErr_Format(PyExc_TypeError, "expected an Encoding, not %.100s, item %zd", Py_TYPE(row)->tp_name, i), nullptr;
    total += std::size_t(as_encoding(row)->count);
  }
  Ref name(backend != nullptr ? PyUnicode_FromObject(backend)
           : n != 0           ? Py_NewRef(as_encoding(PyTuple_GET_ITEM(rows.get(), 0))->backend)
                              : PyUnicode_InternFromString("hf"));
  Ref made(name ? new_batch(n, total, nullptr, nullptr, {}) : nullptr);
  if (!made) return nullptr;
  EncodingBatchObject* b = as_batch(made.get());
  std::uint64_t at = 0;
  for (Py_ssize_t i = 0; i < n; ++i) {
    const EncodingObject* row = as_encoding(PyTuple_GET_ITEM(rows.get(), i));
    if (row->count != 0) std::memcpy(b->ids + at, row->ids, std::size_t(row->count) * sizeof(std::uint32_t));
    b->row_splits[i + 1] = at += std::uint64_t(row->count);
  }
  b->encodings = rows.release();
  Py_SETREF(b->backend, name.release());
  return made.release();
}

PyObject* reduce(PyObject* self, PyObject*) {
  EncodingBatchObject* b = as_batch(self);
  const Ref make(PyObject_GetAttrString(reinterpret_cast<PyObject*>(encoding_batch_type), "from_encodings"));
  const Ref rows(PySequence_List(self));
  if (!make || !rows) return nullptr;
  return Py_BuildValue("O(OO)", make.get(), rows.get(), b->backend);
}

PyObject* size_of(PyObject* self, PyObject*) {
  const EncodingBatchObject* b = as_batch(self);
  return PyLong_FromSize_t(sizeof *b + std::size_t(b->total) * sizeof *b->ids + std::size_t(b->rows + 1) * sizeof *b->row_splits);
}

PyMethodDef methods[] = {
    {"from_encodings", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(from_encodings)),
     METH_VARARGS | METH_KEYWORDS | METH_STATIC, "A batch of encodings that were made one by one."},
    {"__reduce__", reduce, METH_NOARGS, "For pickle."},
    {"__sizeof__", size_of, METH_NOARGS, "Size in bytes, without texts and program."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {
    {"ids", get_ids, nullptr, "All ids: a read-only memoryview of uint32.", nullptr},
    {"row_splits", get_row_splits, nullptr, "Where rows begin and end in ids: a read-only memoryview of uint64.", nullptr},
    {"backend", get_backend, nullptr, "Which engine served.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_doc, const_cast<char*>("Ids of many texts in one buffer; a sequence of Encoding.")},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_tp_repr, reinterpret_cast<void*>(repr)},
    {Py_tp_iter, reinterpret_cast<void*>(PySeqIter_New)},
    {Py_sq_length, reinterpret_cast<void*>(length)},
    {Py_sq_item, reinterpret_cast<void*>(item)},
    {Py_mp_length, reinterpret_cast<void*>(length)},
    {Py_mp_subscript, reinterpret_cast<void*>(subscript)},
    {0, nullptr}};

PyType_Spec spec = {"toktier._native.EncodingBatch", sizeof(EncodingBatchObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_SEQUENCE,
                    slots};

}  // namespace

PyObject* new_batch(Py_ssize_t rows, std::size_t total, PyObject* program, PyObject* texts, CallOptions options) {
  auto* b = PyObject_New(EncodingBatchObject, encoding_batch_type);
  if (b == nullptr) return nullptr;
  b->rows = rows;
  b->total = Py_ssize_t(total);
  b->ids = static_cast<std::uint32_t*>(std::malloc((total == 0 ? 1 : total) * sizeof(std::uint32_t)));
  b->row_splits = static_cast<std::uint64_t*>(std::malloc((std::size_t(rows) + 1) * sizeof(std::uint64_t)));
  b->program = Py_XNewRef(program);
  b->texts = Py_XNewRef(texts);
  b->encodings = nullptr;
  b->backend = Py_NewRef(native_backend());
  b->options = options;
  if (b->ids == nullptr || b->row_splits == nullptr) {
    Py_DECREF(b);
    return PyErr_NoMemory(), nullptr;
  }
  b->row_splits[0] = 0;
  return reinterpret_cast<PyObject*>(b);
}

bool register_encoding_batch(PyObject* module) {
  if (column_type == nullptr) column_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&column_spec));
  if (encoding_batch_type == nullptr) encoding_batch_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return column_type != nullptr && encoding_batch_type != nullptr &&
         PyModule_AddObjectRef(module, "EncodingBatch", reinterpret_cast<PyObject*>(encoding_batch_type)) == 0;
}

}  // namespace toktier::bind
