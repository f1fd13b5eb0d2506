// `_native.Encoding`: the ids of one text in the object itself, or a row of a batch. Offsets and tokens are made when asked for.
#pragma once
#include <cstdint>
#include <vector>

#include "bind/bind.h"
#include "bind/program.h"
#include "engine/engine.h"

namespace toktier::bind {

// What a later look at offsets or tokens needs of the call that made the ids.
struct CallOptions {
  bool add_special_tokens = false, plain = false;
};

// Immutable but for `offsets`, which is filled once. Refers to exact str and bytes, a tuple of exact str, a Program (which is
// final and refers to its buffer) and a batch, so that it can be part of no cycle and needs no garbage collection.
struct EncodingObject {
  PyObject_VAR_HEAD             // ob_size: ids stored inside
  const std::uint32_t* ids;     // inside, or in `batch`
  Py_ssize_t count;
  Offset* offsets;              // [count], or null
  PyObject* batch;              // the EncodingBatch that holds the ids, or null
  PyObject* program;            // of the native engine, with `text` (exact str or bytes); else both null
  PyObject* text;
  PyObject* tokens;             // tuple of str given by another engine, or null
  PyObject* backend;            // str
  CallOptions options;
  std::uint32_t inside[1];
};

extern PyTypeObject* encoding_type;

// A new encoding with its own copy of the ids. `program` and `text` may be null; `offsets`, if any, are copied.
PyObject* new_encoding(const std::uint32_t* ids, std::size_t count, const std::vector<Offset>* offsets, PyObject* program,
                       PyObject* text, CallOptions options);
// The same with room for `count` ids, to be filled by the caller before anyone else sees the object.
PyObject* new_encoding(std::size_t count, PyObject* program, PyObject* text, CallOptions options, std::uint32_t*& ids);
// The same with `inner` ids between those that stand around a text, which are written; `ids` is where the inner ones go.
PyObject* new_encoding_within(const IdsAround& around, std::size_t inner, PyObject* program, PyObject* text, CallOptions options,
                              std::uint32_t*& ids);
// A row of a batch; `ids` stays where it is.
PyObject* new_encoding_row(PyObject* batch, const std::uint32_t* ids, std::size_t count, PyObject* program, PyObject* text,
                           CallOptions options);

inline bool is_encoding(PyObject* object) { return Py_TYPE(object) == encoding_type; }
inline EncodingObject* as_encoding(PyObject* object) { return reinterpret_cast<EncodingObject*>(object); }

// For encoding_parts.cpp. `offsets` has one for each id; the object must have none yet. On failure: false or null, and an error
// set.
bool set_offsets(EncodingObject* e, const Offset* offsets);
bool need_offsets(EncodingObject* e);                 // computes them where they are not there
PyObject* encoding_tokens(const EncodingObject* e);   // a new list

// Methods in encoding_parts.cpp.
PyObject* encoding_from_ids(PyObject*, PyObject* args, PyObject* kwargs);
PyObject* encoding_reduce(PyObject* self, PyObject*);
PyObject* encoding_restore(PyObject*, PyObject* args);

// Backend id of what this module encodes itself.
PyObject* native_backend();  // borrowed str

}  // namespace toktier::bind
