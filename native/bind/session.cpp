// `_native.SessionBase`: a growing text of one encoder and its ids (native/session), held in memory, as users call it. append,
// replace and present are whole changes. Not here: stores, names, the reference; session_object.h says what stands where.
#include <iterator>
#include <vector>

#include "bind/encoder.h"
#include "bind/errors.h"
#include "bind/session_docs.h"
#include "bind/session_object.h"
#include "bind/signature.h"
#include "bind/text.h"

namespace toktier::bind {

namespace {

PyObject *name_text, *name_start, *name_expected, *name_add;

const Signature kAppend{"append", {&name_text, &name_expected}, 2, 1};
const Signature kReplace{"replace", {&name_start, &name_text, &name_expected}, 3, 2};
const Signature kPresent{"present", {&name_text, &name_add}, 2, 2};

// Before the turn: an argument may run any code when it is asked for its number. Null: none was given, or an error is set.
struct ExpectedRevision {
  Ref number;
  bool valid = true;
  explicit ExpectedRevision(PyObject* given) {
    if (given == nullptr || given == Py_None) return;
    if (PyBool_Check(given) || !PyIndex_Check(given))
      PyErr_Format(PyExc_TypeError, "expected_revision must be an integer or None, not %.100s", Py_TYPE(given)->tp_name);
    else
      number = Ref(PyNumber_Index(given));
    valid = bool(number);
  }
  // False with SessionRevisionConflict set.
  bool holds(const SessionObject* s) const {
    if (!number) return true;
    const Ref found(PyLong_FromUnsignedLongLong(s->revision));
    const int same = found ? PyObject_RichCompareBool(number.get(), found.get(), Py_EQ) : -1;
    if (same == 0) set_session_conflict(number.get(), found.get());
    return same == 1;
  }
};

PyObject* change_whole(SessionObject* s, Change change, PyObject* start, PyObject* given, PyObject* expected) {
  if (!ready(s)) return nullptr;
  const Ref text = take_text(given);
  const ExpectedRevision revision(expected);
  Py_ssize_t code_point = 0;
  if (!text || !revision.valid || (start != nullptr && !take_number(start, code_point))) return nullptr;
  const Turn turn(s);
  if (!turn || !revision.holds(s) || !is_in_text(s, code_point)) return nullptr;
  const int prepared = prepare(s, change, std::size_t(code_point), text.get());
  if (prepared < 0) return nullptr;
  return prepared == 0 ? unchanged(s) : commit_as(s, s->revision + 1);
}

PyObject* append(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  PyObject* a[6] = {};
  if (!bind_arguments(kAppend, args, n, keywords, a)) return nullptr;
  return change_whole(as_session(self), Change::append, nullptr, a[0], a[1]);
}

PyObject* replace(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  PyObject* a[6] = {};
  if (!bind_arguments(kReplace, args, n, keywords, a)) return nullptr;
  if (a[1] == nullptr) return PyErr_SetString(PyExc_TypeError, "replace() is missing the argument 'text'"), nullptr;
  return change_whole(as_session(self), Change::replace, a[0], a[1], a[2]);
}

PyObject* present(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  SessionObject* s = as_session(self);
  PyObject* a[6] = {};
  if (!bind_arguments(kPresent, args, n, keywords, a) || !ready(s)) return nullptr;
  if (a[1] != nullptr && !PyBool_Check(a[1]))
    return PyErr_Format(PyExc_TypeError, "add_special_tokens must be True or False, not %.100s", Py_TYPE(a[1])->tp_name), nullptr;
  const Ref text = take_text(a[0]);
  if (!text) return nullptr;
  const Turn turn(s);
  if (!turn || !holds_all(s)) return nullptr;
  const int prepared = prepare(s, Change::present, 0, text.get());
  if (prepared < 0) return nullptr;
  if (prepared > 0) {
    const Ref patch(commit_as(s, s->revision + 1));
    if (!patch) return nullptr;
  }
  return encoding_of(s, text.get(), a[1] == Py_True);
}

PyObject* snapshot(PyObject* self, PyObject*) {
  SessionObject* s = as_session(self);
  if (!ready(s)) return nullptr;
  const Turn turn(s);
  if (!turn) return nullptr;
  return encoding_of(s, nullptr, false);
}

Py_ssize_t length(PyObject* self) {
  const SessionObject* s = as_session(self);
  return ready(s) ? Py_ssize_t(s->session->tokens()) : -1;
}

PyObject* number_of(PyObject* self, std::size_t (*read)(const Session&)) {
  const SessionObject* s = as_session(self);
  return ready(s) ? PyLong_FromSize_t(read(*s->session)) : nullptr;
}

PyObject* get_text_length(PyObject* self, void*) {
  return number_of(self, [](const Session& s) { return s.code_points(); });
}
PyObject* get_byte_length(PyObject* self, void*) {
  return number_of(self, [](const Session& s) { return s.bytes(); });
}
PyObject* get_held_from(PyObject* self, void*) {
  return number_of(self, [](const Session& s) { return s.base().bytes; });
}
PyObject* get_final_bytes(PyObject* self, void*) {
  return number_of(self, [](const Session& s) { return s.final_end().bytes; });
}
PyObject* get_memory(PyObject* self, void*) {
  return number_of(self, [](const Session& s) { return s.memory(); });
}
PyObject* get_revision(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(as_session(self)->revision); }

int init(PyObject* self, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"encoder", nullptr};
  SessionObject* s = as_session(self);
  PyObject* encoder;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:SessionBase", const_cast<char**>(names), &encoder)) return -1;
  if (s->session != nullptr) return PyErr_SetString(PyExc_RuntimeError, "SessionBase.__init__ was called twice"), -1;
  PyObject* program = program_of_encoder(encoder);
  if (program == nullptr) return -1;
  ProgramOwner* owner = program_of(program);
  try {
    s->session = new Session(owner->shared(), owner->contexts());
  } catch (...) {
    return set_from_current_exception(), -1;
  }
  s->owner = owner;
  s->encoder = Py_NewRef(encoder);
  s->program = Py_NewRef(program);
  return 0;
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_session(self)->encoder);
  Py_VISIT(as_session(self)->program);
  return 0;
}

// The session needs the program as long as it lives, which is until dealloc().
int clear(PyObject* self) {
  Py_CLEAR(as_session(self)->encoder);
  return 0;
}

void dealloc(PyObject* self) {
  SessionObject* s = as_session(self);
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  delete s->session;
  Py_CLEAR(s->program);
  type->tp_free(self);
  Py_DECREF(type);
}

const PyMethodDef of_users[] = {
    {"append", erased(append), METH_FASTCALL | METH_KEYWORDS, session_append_doc},
    {"replace", erased(replace), METH_FASTCALL | METH_KEYWORDS, session_replace_doc},
    {"present", erased(present), METH_FASTCALL | METH_KEYWORDS, session_present_doc},
    {"snapshot", snapshot, METH_NOARGS, session_snapshot_doc},
};

PyGetSetDef properties[] = {
    {"text_length", get_text_length, nullptr, "Code points of the text.", nullptr},
    {"byte_length", get_byte_length, nullptr, "Bytes of its UTF-8.", nullptr},
    {"held_from", get_held_from, nullptr, "Byte from which on text and ids are held; 0: all of it.", nullptr},
    {"final_bytes", get_final_bytes, nullptr, "Bytes before the last cut: no append changes their ids.", nullptr},
    {"memory", get_memory, nullptr, "Bytes that text, ids and marks take.", nullptr},
    {"revision", get_revision, nullptr, "Number of changes so far.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_methods, nullptr},  // filled below
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_init, reinterpret_cast<void*>(init)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_doc, const_cast<char*>("SessionBase(encoder)\n--\n\nA growing text and its ids, in memory.")},
    {Py_tp_getset, properties},
    {Py_sq_length, reinterpret_cast<void*>(length)},
    {0, nullptr}};

PyType_Spec spec = {"toktier._native.SessionBase", sizeof(SessionObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

bool register_session(PyObject* module) {
  if (!intern({{&name_text, "text"}, {&name_start, "start"}, {&name_expected, "expected_revision"},
               {&name_add, "add_special_tokens"}}))
    return false;
  static std::vector<PyMethodDef> methods;  // lives as long as the type, which is never freed
  if (methods.empty()) {
    methods.assign(std::begin(of_users), std::end(of_users));
    for (const PyMethodDef* half = session_halves; half->ml_name != nullptr; ++half) methods.push_back(*half);
    methods.push_back({});
  }
  slots[0].pfunc = methods.data();
  static PyObject* const type = PyType_FromSpec(&spec);
  return type != nullptr && PyModule_AddObjectRef(module, "SessionBase", type) == 0 && register_token_patch(module);
}

}  // namespace toktier::bind
