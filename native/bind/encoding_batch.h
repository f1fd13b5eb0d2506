// `_native.EncodingBatch`: the ids of many texts in one buffer, with row splits.
#pragma once
#include <cstdint>

#include "bind/bind.h"
#include "bind/encoding.h"

namespace toktier::bind {

struct EncodingBatchObject {
  PyObject_HEAD
  std::uint32_t* ids;        // malloc
  std::uint64_t* row_splits; // malloc, [rows + 1]
  Py_ssize_t rows, total;    // total = row_splits[rows]
  PyObject* program;         // of the native engine, with `texts`, a tuple of exact str and bytes; else both null
  PyObject* texts;
  PyObject* encodings;       // tuple of Encoding that the batch was made of, or null
  PyObject* backend;
  CallOptions options;
};

extern PyTypeObject* encoding_batch_type;

// Room for `rows` rows and `total` ids, to be filled by the caller before anyone else sees the object. Takes references.
PyObject* new_batch(Py_ssize_t rows, std::size_t total, PyObject* program, PyObject* texts, CallOptions options);

inline EncodingBatchObject* as_batch(PyObject* object) { return reinterpret_cast<EncodingBatchObject*>(object); }

}  // namespace toktier::bind
