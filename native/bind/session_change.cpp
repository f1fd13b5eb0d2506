// What every change of a session does: its turn, what differs, the engine, the patch.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "bind/batch_call.h"
#include "bind/encoder.h"
#include "bind/encoding.h"
#include "bind/engine_call.h"
#include "bind/errors.h"
#include "bind/session_object.h"

namespace toktier::bind {

namespace {

// Text without a place to cut, behind the last one: from here on it is reported.
constexpr std::size_t kLongOpenText = 4096;
// Code points of a str that are compared with the session's text at once.
constexpr std::size_t kCompared = 1 << 13;

PyTypeObject* patch_type = nullptr;

// What `text` holds beyond what the session does: byte of the session where they part, and the rest of `text` from there.
struct Parting {
  std::size_t bytes = 0;
  std::string_view rest;
};

bool part(const SessionObject* s, PyObject* text, TextBuffer& buffer, Parting& out, TextFault& fault) {
  const Session& session = *s->session;
  const TranscodeLanes& lanes = s->owner->transcode();
  const bool is_str = PyUnicode_Check(text);
  if (!is_str || PyUnicode_IS_COMPACT_ASCII(text)) {
    std::string_view utf8;
    if (!utf8_of(text, lanes, buffer, utf8, fault)) return false;
    out.bytes = session.common_prefix(0, utf8);
    out.rest = utf8.substr(out.bytes);
    return true;
  }
  // A piece of the text at a time, so that what is known already takes no memory.
  const std::size_t n = std::size_t(PyUnicode_GET_LENGTH(text));
  std::size_t from = 0;
  while (from < n && out.bytes < session.bytes()) {
    const std::size_t count = std::min(kCompared, n - from);
    std::string_view utf8;
    if (!utf8_of_part(text, from, count, lanes, buffer, utf8, fault)) return false;
    const std::size_t same = session.common_prefix(out.bytes, utf8);
    out.bytes += same;
    from += same == utf8.size() ? count : count_code_points(utf8.substr(0, same));
    if (same < utf8.size()) break;
  }
  return utf8_of_part(text, from, n - from, lanes, buffer, out.rest, fault);
}

PyObject* new_patch(std::size_t keep, const std::uint32_t* ids, std::size_t count, std::uint64_t revision) {
  Ref made(PyStructSequence_New(patch_type));
  Ref kept(PyLong_FromSize_t(keep)), replacement(new_encoding(ids, count, nullptr, nullptr, nullptr, {})),
      number(PyLong_FromUnsignedLongLong(revision));
  if (!made || !kept || !replacement || !number) return nullptr;
  PyStructSequence_SET_ITEM(made.get(), 0, kept.release());
  PyStructSequence_SET_ITEM(made.get(), 1, replacement.release());
  PyStructSequence_SET_ITEM(made.get(), 2, number.release());
  return made.release();
}

PyStructSequence_Field patch_fields[] = {
    {"keep_tokens", "How many tokens stay as they were."},
    {"replacement_ids", "The ids behind them, as an Encoding."},
    {"revision", "The revision of the session after the change."},
    {nullptr, nullptr}};
PyStructSequence_Desc patch_description = {"toktier._native.TokenPatch", "What a change made of the tokens of a session.",
                                           patch_fields, 3};

}  // namespace

Turn::Turn(SessionObject* s) {
  const pid_t self = getpid();
  const unsigned long thread = PyThread_get_thread_ident();
  while (s->busy == self) {
    if (s->busy_thread == thread) {
      PyErr_SetString(PyExc_RuntimeError, "this thread is changing the session already");
      return;
    }
    {
      WithoutGil released(true);
      usleep(50);
    }
    if (PyErr_CheckSignals() != 0) return;
  }
  if (s->busy != 0) {
    try {
      s->session->abandon();
    } catch (const std::bad_alloc&) {
      PyErr_NoMemory();
      return;
    }
    s->prepared = false;
  }
  s->busy = self;
  s->busy_thread = thread;
  s_ = s;
}

bool ready(const SessionObject* s) {
  if (s->session != nullptr) return true;
  PyErr_SetString(PyExc_RuntimeError, "SessionBase.__init__ was not called");
  return false;
}

bool take_number(PyObject* object, Py_ssize_t& start) {
  if (PyBool_Check(object) || !PyIndex_Check(object))
    return PyErr_Format(PyExc_TypeError, "start must be an integer, not %.100s", Py_TYPE(object)->tp_name), false;
  start = PyNumber_AsSsize_t(object, PyExc_ValueError);
  return start != -1 || !PyErr_Occurred();
}

bool is_in_text(const SessionObject* s, Py_ssize_t start) {
  if (start >= 0 && std::size_t(start) <= s->session->code_points()) return true;
  PyErr_Format(PyExc_ValueError, "start is %zd: the text has %zu code points", start, s->session->code_points());
  return false;
}

int prepare(SessionObject* s, Change change, std::size_t start, PyObject* text) {
  s->prepared = false;
  CallerLease caller(*s->owner);
  TextFault fault{};
  bool valid = false, same = false;
  try {
    Session& session = *s->session;
    const unsigned workers = text_weight(text) >= Py_ssize_t(worth_a_thread) ? usable_processors() : 1;
    WithoutGil released(text_weight(text) >= kReleaseGilFrom);
    std::string_view utf8;
    std::size_t begin = session.bytes();
    if (change == Change::present) {
      Parting parting;
      valid = part(s, text, caller->buffer, parting, fault);
      begin = parting.bytes;
      utf8 = parting.rest;
    } else {
      valid = utf8_of(text, s->owner->transcode(), caller->buffer, utf8, fault);
      if (change == Change::replace) begin = session.byte_of(start);
    }
    if (valid) {
      same = begin == session.bytes() && utf8.empty();
      if (!same) session.prepare(*caller->context, begin, utf8, workers);
    }
  } catch (const NeedsText& needs) {
    return set_session_needs_text(needs.held_from), -1;
  } catch (...) {
    return set_from_current_exception(), -1;
  }
  if (!valid) return set_invalid_text(fault), -1;
  if (same) return 0;
  s->prepared = true;
  return 1;
}

PyObject* commit_as(SessionObject* s, std::uint64_t revision) {
  try {
    Session& session = *s->session;
    const TokenPatch patch = session.patch();
    Ref made(new_patch(patch.keep, patch.ids, patch.count, revision));
    if (!made) return nullptr;
    const std::size_t bytes = session.prepared_text().size();
    session.commit();
    s->prepared = false;
    s->revision = revision;
    if (s->encoder != nullptr)  // gone where the garbage collector takes session and encoder apart
      count_session_call(s->encoder, bytes, session.bytes() - session.final_end().bytes > kLongOpenText);
    return made.release();
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
}

PyObject* unchanged(const SessionObject* s) { return new_patch(s->session->tokens(), nullptr, 0, s->revision); }

bool holds_all(const SessionObject* s) {
  if (s->session->base().bytes == 0) return true;
  set_session_needs_text(s->session->base().code_points);
  return false;
}

PyObject* encoding_of(SessionObject* s, PyObject* text, bool add_special_tokens) {
  const Session& session = *s->session;
  if (!holds_all(s)) return nullptr;
  const IdsAround around = add_special_tokens ? ids_around(s->owner->program()) : IdsAround{};
  const std::string_view held = session.held_text();
  Ref own(text != nullptr ? Py_NewRef(text) : PyBytes_FromStringAndSize(held.data(), Py_ssize_t(held.size())));
  if (!own) return nullptr;
  std::uint32_t* ids;
  PyObject* const made = new_encoding_within(around, session.tokens(), s->program, own.get(), {add_special_tokens, false}, ids);
  if (made != nullptr && session.tokens() != 0) std::memcpy(ids, session.held_ids(), session.tokens() * sizeof *ids);
  return made;
}

bool register_token_patch(PyObject* module) {
  if (patch_type == nullptr) patch_type = PyStructSequence_NewType(&patch_description);
  return patch_type != nullptr && PyModule_AddObjectRef(module, "TokenPatch", reinterpret_cast<PyObject*>(patch_type)) == 0;
}

}  // namespace toktier::bind
