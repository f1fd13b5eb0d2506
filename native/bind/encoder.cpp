// `_native.EncoderBase`: encode, encode_batch, count, count_batch without a Python frame. What needs a decision (no program, a
// session, a look-up) goes to the `_routed` methods of the subclass.
#include <algorithm>
#include <cstring>
#include <vector>

#include "bind/batch_call.h"
#include "bind/encoding.h"
#include "bind/encoder_docs.h"
#include "bind/encoding_batch.h"
#include "bind/encoder.h"
#include "bind/engine_call.h"
#include "bind/errors.h"
#include "bind/signature.h"
#include "engine/cuts.h"

namespace toktier::bind {

namespace {

struct EncoderObject {
  PyObject_HEAD
  PyObject* program;    // a Program, None, or null before __init__
  ProgramOwner* owner;  // inside `program`, or null
  std::uint64_t calls, bytes;  // texts that the engine served, and their UTF-8; written with the GIL held
  std::uint64_t uncut;         // changes of sessions that found no place to cut
  std::uint64_t of_sessions;   // of `calls`: changes of sessions
  Py_ssize_t routed_from;      // bytes of text from which on encode() asks the subclass, or 0: never
  Py_ssize_t others_from;      // the same of encode_batch(), of all its texts, count() and count_batch()
};

EncoderObject* as_encoder(PyObject* object) { return reinterpret_cast<EncoderObject*>(object); }

// Names of keywords and methods, interned at start, so that most keywords are told apart by address.
PyObject *name_text, *name_texts, *name_add, *name_session, *name_lookup, *name_plain, *name_offsets, *name_workers, *name_off;
PyObject *name_encode_routed, *name_encode_batch_routed, *name_count_routed, *name_count_batch_routed;

// Exactly True or False: a mistaken place of an argument must not pass for a yes.
bool take_flag(PyObject* value, PyObject* name, bool& flag) {
  if (value == nullptr) return true;
  if (!PyBool_Check(value))
    return PyErr_Format(PyExc_TypeError, "%U must be True or False, not %.100s", name, Py_TYPE(value)->tp_name), false;
  flag = value == Py_True;
  return true;
}

bool given(PyObject* value) { return value != nullptr && value != Py_None; }
PyObject* flag_object(bool flag) { return flag ? Py_True : Py_False; }
PyObject* or_none(PyObject* value) { return value == nullptr ? Py_None : value; }

// 0: `workers` was not given. False with an error set.
bool take_workers(PyObject* value, unsigned& workers) {
  workers = 0;
  if (!given(value)) return true;
  if (PyBool_Check(value) || !PyIndex_Check(value))
    return PyErr_Format(PyExc_TypeError, "workers must be an integer or None, not %.100s", Py_TYPE(value)->tp_name), false;
  const Py_ssize_t n = PyNumber_AsSsize_t(value, nullptr);
  if (n == -1 && PyErr_Occurred()) return false;
  if (n < 1) return PyErr_SetString(PyExc_ValueError, "workers must be at least 1"), false;
  workers = unsigned(n < 1024 ? n : 1024);
  return true;
}

bool ready(const EncoderObject* e) {
  if (e->program != nullptr) return true;
  PyErr_SetString(PyExc_RuntimeError, "EncoderBase.__init__ was not called with a program or None");
  return false;
}

const Signature kEncode{"encode", {&name_text, &name_add, &name_session, &name_lookup, &name_plain, &name_offsets}, 6, 2};
const Signature kEncodeBatch{"encode_batch", {&name_texts, &name_add, &name_workers, &name_plain}, 4, 2};
const Signature kCount{"count", {&name_text, &name_add, &name_plain}, 3, 2};
const Signature kCountBatch{"count_batch", {&name_texts, &name_add, &name_workers, &name_plain}, 4, 2};

// `single`: one text, whose errors do not name an item.
bool run_batch(EncoderObject* e, BatchCall& call, unsigned workers, bool single = false) {
  {
    WithoutGil released(call.weight() >= kReleaseGilFrom);
    call.run(workers);
  }
  if (call.failed()) return call.set_error(single), false;
  e->calls += call.rows();
  e->bytes += call.bytes();
  return true;
}

// A long text by several threads. Its ids only: offsets are made in one go.
PyObject* encode_shared_out(EncoderObject* e, PyObject* text, const EncodeOptions& options) {
  CallerLease caller(*e->owner);
  const Ref texts(PyTuple_Pack(1, text));
  if (!texts) return nullptr;
  BatchCall call(*e->owner, *caller, texts.get(), options, true);
  if (!run_batch(e, call, 0, true)) return nullptr;
  std::uint32_t* ids;
  Ref made(new_encoding(call.total(), e->program, text, {options.add_special_tokens, options.plain}, ids));
  if (!made) return nullptr;
  WithoutGil released(true);
  std::uint64_t row_splits[2];
  call.gather(ids, row_splits);
  return made.release();
}

// The program lives as long as the encoder, which the caller of a method holds.
PyObject* encode_ids(EncoderObject* e, PyObject* text, const EncodeOptions& options) {
  CallerLease caller(*e->owner);
  std::size_t bytes = 0, count = 0;
  if (!prepare_text(*e->owner, text, options, *caller, bytes, count)) return nullptr;
  ++e->calls;
  e->bytes += bytes;
  std::uint32_t* ids;
  Ref made(new_encoding(count, e->program, text, {options.add_special_tokens, options.plain}, ids));
  if (!made) return nullptr;
  WithoutGil released(count >= std::size_t(kReleaseGilFrom) * 16);
  caller->context->write(ids);
  return made.release();
}

PyObject* encode_with_offsets(EncoderObject* e, PyObject* text, const EncodeOptions& options) {
  CallerLease caller(*e->owner);
  std::size_t bytes = 0;
  if (!encode_text(*e->owner, text, options, *caller, bytes)) return nullptr;
  ++e->calls;
  e->bytes += bytes;
  const Result& result = caller->result;
  return new_encoding(result.ids.data(), result.ids.size(), &result.offsets, e->program, text,
                      {options.add_special_tokens, options.plain});
}

PyObject* encode_as(bool may_route, PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  EncoderObject* e = as_encoder(self);
  PyObject* a[6] = {};
  EncodeOptions options;
  if (!bind_arguments(kEncode, args, n, keywords, a) || !take_flag(a[1], name_add, options.add_special_tokens) ||
      !take_flag(a[4], name_plain, options.plain) || !take_flag(a[5], name_offsets, options.offsets) || !ready(e))
    return nullptr;
  const auto route = [&](PyObject* text) {
    // What is looked up comes without offsets: where another engine serves, which makes them with the ids, nothing is.
    PyObject* const lookup = a[3] == nullptr && e->owner == nullptr && options.offsets ? name_off : or_none(a[3]);
    return PyObject_CallMethodObjArgs(self, name_encode_routed, text, flag_object(options.add_special_tokens), or_none(a[2]),
                                      lookup, flag_object(options.plain), nullptr);
  };
  if (e->owner == nullptr || (may_route && (given(a[2]) || given(a[3])))) return route(a[0]);
  const Ref text = take_text(a[0]);
  if (!text) return nullptr;
  if (may_route && e->routed_from != 0 && text_weight(text.get()) >= e->routed_from) return route(text.get());
  try {
    if (options.offsets) return encode_with_offsets(e, text.get(), options);
    if (is_shared_out(*e->owner, text_weight(text.get()))) return encode_shared_out(e, text.get(), options);
    return encode_ids(e, text.get(), options);
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
}

PyObject* encode(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  return encode_as(true, self, args, n, keywords);
}

PyObject* encode_here(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  return encode_as(false, self, args, n, keywords);
}

PyObject* count_as(bool may_route, PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  EncoderObject* e = as_encoder(self);
  PyObject* a[6] = {};
  EncodeOptions options;
  if (!bind_arguments(kCount, args, n, keywords, a) || !take_flag(a[1], name_add, options.add_special_tokens) ||
      !take_flag(a[2], name_plain, options.plain) || !ready(e))
    return nullptr;
  const auto route = [&](PyObject* text) {
    return PyObject_CallMethodObjArgs(self, name_count_routed, text, flag_object(options.add_special_tokens),
                                      flag_object(options.plain), nullptr);
  };
  if (e->owner == nullptr) return route(a[0]);
  const Ref text = take_text(a[0]);
  if (!text) return nullptr;
  if (may_route && e->others_from != 0 && text_weight(text.get()) >= e->others_from) return route(text.get());
  try {
    CallerLease caller(*e->owner);
    if (is_shared_out(*e->owner, text_weight(text.get()))) {
      const Ref texts(PyTuple_Pack(1, text.get()));
      if (!texts) return nullptr;
      BatchCall call(*e->owner, *caller, texts.get(), options, false);
      return run_batch(e, call, 0, true) ? PyLong_FromSize_t(call.length(0)) : nullptr;
    }
    std::size_t bytes = 0, ids = 0;
    if (!count_text(*e->owner, text.get(), options, *caller, bytes, ids)) return nullptr;
    ++e->calls;
    e->bytes += bytes;
    return PyLong_FromSize_t(ids);
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
}

PyObject* count(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  return count_as(true, self, args, n, keywords);
}

PyObject* count_here(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  return count_as(false, self, args, n, keywords);
}

// What encode_batch and count_batch share: arguments, or the answer of a routed method in `routed`.
struct BatchArguments {
  EncodeOptions options;
  unsigned workers = 0;
  Ref texts, routed, program;
};

bool weighs(PyObject* texts, Py_ssize_t bytes) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(texts) && bytes > 0; ++i) bytes -= text_weight(PyTuple_GET_ITEM(texts, i));
  return bytes <= 0;
}

// `route`: null where this engine is to answer.
bool take_batch(PyObject* self, const Signature& signature, PyObject* const* args, Py_ssize_t n, PyObject* keywords,
                PyObject* route, BatchArguments& out) {
  EncoderObject* e = as_encoder(self);
  PyObject* a[6] = {};
  if (!bind_arguments(signature, args, n, keywords, a) || !take_flag(a[1], name_add, out.options.add_special_tokens) ||
      !take_workers(a[2], out.workers) || !take_flag(a[3], name_plain, out.options.plain) || !ready(e))
    return false;
  const auto ask = [&](PyObject* texts) {
    out.routed = Ref(PyObject_CallMethodObjArgs(self, route, texts, flag_object(out.options.add_special_tokens), or_none(a[2]),
                                                flag_object(out.options.plain), nullptr));
    return bool(out.routed);
  };
  if (e->owner == nullptr && route != nullptr) return ask(a[0]);
  if (e->owner == nullptr) return PyErr_SetString(PyExc_TypeError, "there is no program"), false;
  out.program = Ref::borrow(e->program);
  out.texts = take_texts(a[0]);
  if (!out.texts) return false;
  return route != nullptr && e->others_from != 0 && weighs(out.texts.get(), e->others_from) ? ask(out.texts.get()) : true;
}

PyObject* encode_batch_as(PyObject* route, PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  EncoderObject* e = as_encoder(self);
  try {
    BatchArguments a;
    if (!take_batch(self, kEncodeBatch, args, n, keywords, route, a)) return nullptr;
    if (a.routed) return a.routed.release();
    CallerLease caller(*e->owner);
    BatchCall call(*e->owner, *caller, a.texts.get(), a.options, true);
    if (!run_batch(e, call, a.workers)) return nullptr;
    const std::size_t total = call.total();
    Ref batch(new_batch(Py_ssize_t(call.rows()), total, a.program.get(), a.texts.get(),
                        {a.options.add_special_tokens, a.options.plain}));
    if (!batch) return nullptr;
    WithoutGil released(Py_ssize_t(total) >= kReleaseGilFrom);
    call.gather(as_batch(batch.get())->ids, as_batch(batch.get())->row_splits);
    return batch.release();
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
}

PyObject* encode_batch(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  return encode_batch_as(name_encode_batch_routed, self, args, n, keywords);
}

PyObject* encode_batch_here(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  return encode_batch_as(nullptr, self, args, n, keywords);
}

PyObject* count_batch_as(PyObject* route, PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  EncoderObject* e = as_encoder(self);
  try {
    BatchArguments a;
    if (!take_batch(self, kCountBatch, args, n, keywords, route, a)) return nullptr;
    if (a.routed) return a.routed.release();
    CallerLease caller(*e->owner);
    BatchCall call(*e->owner, *caller, a.texts.get(), a.options, false);
    if (!run_batch(e, call, a.workers)) return nullptr;
    Ref list(PyList_New(Py_ssize_t(call.rows())));
    for (std::size_t i = 0; list && i < call.rows(); ++i) {
      PyObject* length = PyLong_FromSize_t(call.length(i));
      if (length == nullptr) return nullptr;
      PyList_SET_ITEM(list.get(), Py_ssize_t(i), length);
    }
    return list.release();
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
}

PyObject* count_batch(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  return count_batch_as(name_count_batch_routed, self, args, n, keywords);
}

PyObject* count_batch_here(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  return count_batch_as(nullptr, self, args, n, keywords);
}

// The Encoding of a text whose first `end` bytes have known ids; None where it may not be cut there, or is malformed behind.
PyObject* encode_behind(PyObject* self, PyObject* args) {
  EncoderObject* e = as_encoder(self);
  PyObject *given, *utf8, *known;
  Py_ssize_t end;
  int add_special_tokens;
  if (!ready(e)) return nullptr;
  if (!PyArg_ParseTuple(args, "OSSnp:_encode_behind", &given, &utf8, &known, &end, &add_special_tokens)) return nullptr;
  if (e->owner == nullptr) return PyErr_SetString(PyExc_TypeError, "there is no program"), nullptr;
  const Ref text = take_text(given);
  if (!text) return nullptr;
  const std::string_view whole(PyBytes_AS_STRING(utf8), std::size_t(PyBytes_GET_SIZE(utf8)));
  const std::size_t n_known = std::size_t(PyBytes_GET_SIZE(known)) / sizeof(std::uint32_t);
  if (end < 0 || std::size_t(end) > whole.size()) return PyErr_SetString(PyExc_ValueError, "the end is not in the text"), nullptr;
  try {
    const Program& program = e->owner->program();
    const std::string_view rest = whole.substr(std::size_t(end));
    if (validate_utf8(rest) != std::string_view::npos) Py_RETURN_NONE;
    if (!rest.empty() && end > 0 && cut_kind(program, whole, std::size_t(end), true) == 0) Py_RETURN_NONE;
    CallerLease caller(*e->owner);
    EncodeOptions options;
    options.post_process = false;
    options.continued = end > 0;
    const std::size_t count = caller->context->prepare(rest, options);
    ++e->calls;
    e->bytes += rest.size();
    const IdsAround around = add_special_tokens != 0 ? ids_around(program) : IdsAround{};
    std::uint32_t* ids;
    Ref made(new_encoding_within(around, n_known + count, e->program, text.get(), {add_special_tokens != 0, false}, ids));
    if (!made) return nullptr;
    if (n_known != 0) std::memcpy(ids, PyBytes_AS_STRING(known), n_known * sizeof *ids);
    caller->context->write(ids + n_known);
    return made.release();
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
}

PyObject* no_route(PyObject* self, PyObject*) {
  return PyErr_Format(PyExc_NotImplementedError, "%.100s has no engine for this call", Py_TYPE(self)->tp_name), nullptr;
}

PyObject* get_program(PyObject* self, void*) { return Py_NewRef(or_none(as_encoder(self)->program)); }
PyObject* get_native_calls(PyObject* self, void*) {
  return Py_BuildValue("(KK)", static_cast<unsigned long long>(as_encoder(self)->calls),
                       static_cast<unsigned long long>(as_encoder(self)->bytes));
}

PyObject* get_native_session_calls(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(as_encoder(self)->of_sessions);
}

PyObject* get_native_uncut(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(as_encoder(self)->uncut); }

int init(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"program", "routed_from", "others_from", nullptr};
  EncoderObject* e = as_encoder(self);
  PyObject* program;
  Py_ssize_t routed_from = 0, others_from = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|nn:EncoderBase", const_cast<char**>(names), &program, &routed_from,
                                   &others_from))
    return -1;
  if (e->program != nullptr) return PyErr_SetString(PyExc_RuntimeError, "EncoderBase.__init__ was called twice"), -1;
  ProgramOwner* owner = program == Py_None ? nullptr : program_of(program);
  if (program != Py_None && owner == nullptr) return -1;
  e->program = Py_NewRef(program);
  e->owner = owner;
  e->routed_from = std::max<Py_ssize_t>(routed_from, 0);
  e->others_from = std::max<Py_ssize_t>(others_from, 0);
  return 0;
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_encoder(self)->program);
  return 0;
}

int clear(PyObject* self) {
  as_encoder(self)->owner = nullptr;
  Py_CLEAR(as_encoder(self)->program);
  return 0;
}

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"encode", erased(encode), METH_FASTCALL | METH_KEYWORDS, encode_doc},
    {"_encode_here", erased(encode_here), METH_FASTCALL | METH_KEYWORDS, "encode() by the engine, whatever the subclass would."},
    {"_encode_behind", encode_behind, METH_VARARGS, "(text, utf8, ids, end, add_special_tokens): those before `end` are known."},
    {"encode_batch", erased(encode_batch), METH_FASTCALL | METH_KEYWORDS, encode_batch_doc},
    {"_encode_batch_here", erased(encode_batch_here), METH_FASTCALL | METH_KEYWORDS, "encode_batch() by the engine."},
    {"_count_here", erased(count_here), METH_FASTCALL | METH_KEYWORDS, "count() by the engine."},
    {"_count_batch_here", erased(count_batch_here), METH_FASTCALL | METH_KEYWORDS, "count_batch() by the engine."},
    {"count", erased(count), METH_FASTCALL | METH_KEYWORDS, count_doc},
    {"count_batch", erased(count_batch), METH_FASTCALL | METH_KEYWORDS, count_batch_doc},
    {"_encode_routed", no_route, METH_VARARGS, "For subclasses: (text, add_special_tokens, session, lookup, plain)."},
    {"_encode_batch_routed", no_route, METH_VARARGS, "For subclasses: (texts, add_special_tokens, workers, plain)."},
    {"_count_routed", no_route, METH_VARARGS, "For subclasses: (text, add_special_tokens, plain)."},
    {"_count_batch_routed", no_route, METH_VARARGS, "For subclasses: (texts, add_special_tokens, workers, plain)."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {
    {"program", get_program, nullptr, "The program, or None where another engine serves.", nullptr},
    {"native_calls", get_native_calls, nullptr, "Texts that the native engine served, and their bytes of UTF-8.", nullptr},
    {"native_session_calls", get_native_session_calls, nullptr, "Of `native_calls`: changes of sessions.", nullptr},
    {"native_uncut", get_native_uncut, nullptr, "Changes of sessions after which 4 KiB and more had no place to cut.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_init, reinterpret_cast<void*>(init)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_doc, const_cast<char*>("EncoderBase(program)\n--\n\nThe calls of a tokenizer that must not enter Python.")},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {0, nullptr}};

PyType_Spec spec = {"toktier._native.EncoderBase", sizeof(EncoderObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

PyTypeObject* encoder_type = nullptr;

}  // namespace

PyObject* program_of_encoder(PyObject* encoder) {
  if (PyObject_TypeCheck(encoder, encoder_type) && as_encoder(encoder)->owner != nullptr) return as_encoder(encoder)->program;
  return PyErr_Format(PyExc_TypeError, "expected an EncoderBase with a program, not %.100s", Py_TYPE(encoder)->tp_name), nullptr;
}

void count_session_call(PyObject* encoder, std::size_t bytes, bool uncut) {
  EncoderObject* e = as_encoder(encoder);
  ++e->calls;
  ++e->of_sessions;
  e->bytes += bytes;
  e->uncut += uncut;
}

void count_call(PyObject* encoder, std::size_t bytes) {
  ++as_encoder(encoder)->calls;
  as_encoder(encoder)->bytes += bytes;
}

bool register_encoder(PyObject* module) {
  if (!intern({{&name_text, "text"}, {&name_texts, "texts"}, {&name_add, "add_special_tokens"}, {&name_session, "session"},
               {&name_lookup, "lookup"}, {&name_plain, "plain"}, {&name_offsets, "offsets"}, {&name_workers, "workers"},
               {&name_off, "off"},
               {&name_encode_routed, "_encode_routed"}, {&name_encode_batch_routed, "_encode_batch_routed"},
               {&name_count_routed, "_count_routed"}, {&name_count_batch_routed, "_count_batch_routed"}}))
    return false;
  if (encoder_type == nullptr) encoder_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return encoder_type != nullptr && PyModule_AddObjectRef(module, "EncoderBase", reinterpret_cast<PyObject*>(encoder_type)) == 0;
}

}  // namespace toktier::bind
