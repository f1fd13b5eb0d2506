// `_native.SessionBase`: a growing text of one encoder and its ids (native/session), held in memory. append, replace and present
// are whole changes; prepare_* and commit are their halves, between which a store writes. Not here: stores, names, the reference.
//
// One change at a time: a thread that comes while another one is at it waits. The same thread may come again, because making
// Python objects can run anybody's finalizers: that is refused. A child that was forked meanwhile waits for nobody: what the
// other thread had prepared is let go of, and what was committed is whole, because commits hold the GIL.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "bind/batch_call.h"
#include "bind/encoder.h"
#include "bind/encoding.h"
#include "bind/engine_call.h"
#include "bind/errors.h"
#include "bind/ids.h"
#include "bind/session_docs.h"
#include "bind/signature.h"
#include "session/session.h"

namespace toktier::bind {

namespace {

// Text without a place to cut, behind the last one: from here on it is reported.
constexpr std::size_t kLongOpenText = 4096;
// Text that a step of a store spans at the most; near the end of a change steps are as long as what comes behind them, down to
// the least: an edit near the end finds a step near it.
constexpr std::size_t kLongestStep = 1 << 16, kShortestStep = 1 << 10;
// Code points of a str that are compared with the session's text at once.
constexpr std::size_t kCompared = 1 << 13;

struct SessionObject {
  PyObject_HEAD
  PyObject *encoder, *program;
  ProgramOwner* owner;
  Session* session;
  std::uint64_t revision;
  bool prepared;
  pid_t busy;  // process that a change is under way in, or 0; read and written with the GIL held, as is:
  unsigned long busy_thread;
};

SessionObject* as_session(PyObject* object) { return reinterpret_cast<SessionObject*>(object); }

PyTypeObject* patch_type = nullptr;
PyObject *name_text, *name_start, *name_expected, *name_add;

const Signature kAppend{"append", {&name_text, &name_expected}, 2, 1};
const Signature kReplace{"replace", {&name_start, &name_text, &name_expected}, 3, 2};
const Signature kPresent{"present", {&name_text, &name_add}, 2, 2};

// The session for one change, or for a look at more than a number. Taken and given back with the GIL held. False: not taken, and
// an error is set.
class Turn {
 public:
  explicit Turn(SessionObject* s) {
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
  ~Turn() {
    if (s_ != nullptr) s_->busy = 0;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  explicit operator bool() const { return s_ != nullptr; }

 private:
  SessionObject* s_ = nullptr;
};

bool ready(const SessionObject* s) {
  if (s->session != nullptr) return true;
  PyErr_SetString(PyExc_RuntimeError, "SessionBase.__init__ was not called");
  return false;
}

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

// Before the turn, too. False with TypeError or ValueError set.
bool take_number(PyObject* object, Py_ssize_t& start) {
  if (PyBool_Check(object) || !PyIndex_Check(object))
    return PyErr_Format(PyExc_TypeError, "start must be an integer, not %.100s", Py_TYPE(object)->tp_name), false;
  start = PyNumber_AsSsize_t(object, PyExc_ValueError);
  return start != -1 || !PyErr_Occurred();
}

// False with ValueError set.
bool is_in_text(const SessionObject* s, Py_ssize_t start) {
  if (start >= 0 && std::size_t(start) <= s->session->code_points()) return true;
  PyErr_Format(PyExc_ValueError, "start is %zd: the text has %zu code points", start, s->session->code_points());
  return false;
}

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

enum class Change { append, replace, present };

// 1 prepared, 0 the text is the same, -1 with an error set. The text is one of take_text().
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

// Of the prepared change.
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
    count_session_call(s->encoder, bytes, session.bytes() - session.final_end().bytes > kLongOpenText);
    return made.release();
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
}

PyObject* unchanged(const SessionObject* s) { return new_patch(s->session->tokens(), nullptr, 0, s->revision); }

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

// Refuses a look at text or ids before what is held.
bool holds_all(const SessionObject* s) {
  if (s->session->base().bytes == 0) return true;
  set_session_needs_text(s->session->base().code_points);
  return false;
}

// All ids as an Encoding of `text`, or of a copy of the session's own; within the tokens of the template, if asked for.
PyObject* encoding_of(SessionObject* s, PyObject* text, bool add_special_tokens) {
  const Session& session = *s->session;
  if (!holds_all(s)) return nullptr;
  const IdsAround around = add_special_tokens ? ids_around(s->owner->program()) : IdsAround{};
  const std::string_view held = session.held_text();
  Ref own(text != nullptr ? Py_NewRef(text) : PyBytes_FromStringAndSize(held.data(), Py_ssize_t(held.size())));
  if (!own) return nullptr;
  std::uint32_t* ids;
  const std::size_t count = around.n_before + session.tokens() + around.n_after;
  Ref made(new_encoding(count, s->program, own.get(), {add_special_tokens, false}, ids));
  if (!made) return nullptr;
  ids = std::copy_n(around.before, around.n_before, ids);
  if (session.tokens() != 0) std::memcpy(ids, session.held_ids(), session.tokens() * sizeof *ids);
  std::copy_n(around.after, around.n_after, ids + session.tokens());
  return made.release();
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

// present() of a text that the session is known to hold: without another look at it but for its length.
PyObject* presented(PyObject* self, PyObject* args) {
  SessionObject* s = as_session(self);
  PyObject* given;
  int add_special_tokens;
  if (!ready(s) || !PyArg_ParseTuple(args, "Op:presented", &given, &add_special_tokens)) return nullptr;
  const Ref text = take_text(given);
  if (!text) return nullptr;
  const Turn turn(s);
  if (!turn) return nullptr;
  const std::size_t length = PyUnicode_Check(text.get()) ? std::size_t(PyUnicode_GET_LENGTH(text.get()))
                                                         : std::size_t(PyBytes_GET_SIZE(text.get()));
  if (length != (PyUnicode_Check(text.get()) ? s->session->code_points() : s->session->bytes()))
    return PyErr_SetString(PyExc_ValueError, "that is not the text of the session"), nullptr;
  return encoding_of(s, text.get(), add_special_tokens != 0);
}

PyObject* snapshot(PyObject* self, PyObject*) {
  SessionObject* s = as_session(self);
  if (!ready(s)) return nullptr;
  const Turn turn(s);
  if (!turn) return nullptr;
  return encoding_of(s, nullptr, false);
}

// The halves of a change: whether there is one.

PyObject* prepared_answer(int prepared) { return prepared < 0 ? nullptr : PyBool_FromLong(prepared); }

PyObject* prepare_append(PyObject* self, PyObject* given) {
  SessionObject* s = as_session(self);
  const Ref text = ready(s) ? take_text(given) : Ref();
  if (!text) return nullptr;
  const Turn turn(s);
  if (!turn) return nullptr;
  return prepared_answer(prepare(s, Change::append, 0, text.get()));
}

PyObject* prepare_replace(PyObject* self, PyObject* args) {
  SessionObject* s = as_session(self);
  PyObject *start, *given;
  if (!ready(s) || !PyArg_ParseTuple(args, "OO:prepare_replace", &start, &given)) return nullptr;
  const Ref text = take_text(given);
  Py_ssize_t code_point = 0;
  if (!text || !take_number(start, code_point)) return nullptr;
  const Turn turn(s);
  if (!turn || !is_in_text(s, code_point)) return nullptr;
  return prepared_answer(prepare(s, Change::replace, std::size_t(code_point), text.get()));
}

PyObject* prepare_present(PyObject* self, PyObject* given) {
  SessionObject* s = as_session(self);
  const Ref text = ready(s) ? take_text(given) : Ref();
  if (!text) return nullptr;
  const Turn turn(s);
  if (!turn || !holds_all(s)) return nullptr;
  return prepared_answer(prepare(s, Change::present, 0, text.get()));
}

bool need_prepared(const SessionObject* s) {
  if (!ready(s)) return false;
  if (!s->prepared) PyErr_SetString(PyExc_RuntimeError, "nothing is prepared");
  return s->prepared;
}

PyObject* commit(PyObject* self, PyObject* revision) {
  SessionObject* s = as_session(self);
  if (!need_prepared(s)) return nullptr;
  const unsigned long long number = PyLong_AsUnsignedLongLong(revision);
  if (number == static_cast<unsigned long long>(-1) && PyErr_Occurred()) return nullptr;
  if (number > static_cast<unsigned long long>(INT64_MAX))
    return PyErr_SetString(PyExc_ValueError, "that is no revision"), nullptr;
  const Turn turn(s);
  if (!turn) return nullptr;
  return commit_as(s, number);
}

PyObject* discard(PyObject* self, PyObject*) {
  SessionObject* s = as_session(self);
  if (!ready(s)) return nullptr;
  const Turn turn(s);
  if (!turn) return nullptr;
  s->session->discard();
  s->prepared = false;
  Py_RETURN_NONE;
}

PyObject* bytes_of(const char* data, std::size_t size) { return PyBytes_FromStringAndSize(data, Py_ssize_t(size)); }
PyObject* bytes_of(const std::uint32_t* ids, std::size_t n) {
  return bytes_of(reinterpret_cast<const char*>(ids), n * sizeof *ids);
}

// Bytes [from, end) of what a part in memory and, behind it, a prepared part make.
template <typename T>
PyObject* joined(const T* held, std::size_t n_held, const T* made, std::size_t n_made) {
  Ref bytes(PyBytes_FromStringAndSize(nullptr, Py_ssize_t((n_held + n_made) * sizeof(T))));
  if (!bytes) return nullptr;
  char* const out = PyBytes_AS_STRING(bytes.get());
  if (n_held != 0) std::memcpy(out, held, n_held * sizeof(T));
  if (n_made != 0) std::memcpy(out + n_held * sizeof(T), made, n_made * sizeof(T));
  return bytes.release();
}

PyObject* prepared_begin(PyObject* self, PyObject*) {
  const SessionObject* s = as_session(self);
  return need_prepared(s) ? PyLong_FromSize_t(s->session->prepared_begin().bytes) : nullptr;
}

// What the prepared change makes of everything behind a point (bytes, tokens) at or before its beginning, as steps.
PyObject* changes(PyObject* self, PyObject* args) {
  SessionObject* s = as_session(self);
  Py_ssize_t from_bytes, from_tokens;
  if (!need_prepared(s) || !PyArg_ParseTuple(args, "nn:changes", &from_bytes, &from_tokens)) return nullptr;
  const Turn turn(s);
  if (!turn) return nullptr;
  const Session& session = *s->session;
  const Position &base = session.base(), &begin = session.prepared_begin();
  if (from_bytes < Py_ssize_t(base.bytes) || from_bytes > Py_ssize_t(begin.bytes) || from_tokens < Py_ssize_t(base.tokens) ||
      from_tokens > Py_ssize_t(begin.tokens))
    return PyErr_SetString(PyExc_ValueError, "the point is not held, or behind the change"), nullptr;
  const char* const text = session.held_text().data() + (std::size_t(from_bytes) - base.bytes);
  const std::uint32_t* const ids = session.held_ids() + (std::size_t(from_tokens) - base.tokens);
  std::size_t held_bytes = begin.bytes - std::size_t(from_bytes), held_ids = begin.tokens - std::size_t(from_tokens);
  const Scratch<Position>& marks = session.prepared_marks();
  const char* const made_text = session.prepared_text().data();
  const std::uint32_t* const made_ids = session.prepared_ids().data();
  Ref list(PyList_New(0));
  Position at;
  for (std::size_t i = 0; list && i < marks.size(); ++i) {
    const Position mark = marks.data()[i];
    const std::size_t behind = marks.data()[marks.size() - 1].bytes - mark.bytes, length = held_bytes + mark.bytes - at.bytes;
    if (behind > 0 && length < std::min(kLongestStep, std::max(kShortestStep, behind))) continue;
    const Ref step(Py_BuildValue("(NN)", joined(ids, held_ids, made_ids + at.tokens, mark.tokens - at.tokens),
                                 joined(text, held_bytes, made_text + at.bytes, mark.bytes - at.bytes)));
    if (!step || PyList_Append(list.get(), step.get()) != 0) return nullptr;
    held_bytes = held_ids = 0;
    at = mark;
  }
  if (!list) return nullptr;
  // No cut in all that was prepared: what is held from the point on is final all the same, for the change begins at a cut.
  if (held_bytes != 0) {
    const Ref step(Py_BuildValue("(NN)", bytes_of(ids, held_ids), bytes_of(text, held_bytes)));
    if (!step || PyList_Append(list.get(), step.get()) != 0) return nullptr;
  }
  const std::size_t open_ids = session.prepared_ids().size() - at.tokens, open_text = session.prepared_text().size() - at.bytes;
  return Py_BuildValue("(ONN)", list.get(), bytes_of(made_ids + at.tokens, open_ids), bytes_of(made_text + at.bytes, open_text));
}

// At most `longest` bytes of the held text that end at a byte of it.
PyObject* text_before(PyObject* self, PyObject* args) {
  SessionObject* s = as_session(self);
  Py_ssize_t end, longest;
  if (!ready(s) || !PyArg_ParseTuple(args, "nn:text_before", &end, &longest)) return nullptr;
  const Turn turn(s);
  if (!turn) return nullptr;
  const Py_ssize_t base = Py_ssize_t(s->session->base().bytes);
  if (end < base || end > Py_ssize_t(s->session->bytes()) || longest < 0)
    return PyErr_SetString(PyExc_ValueError, "the text is not held"), nullptr;
  const Py_ssize_t size = std::min(longest, end - base);
  return bytes_of(s->session->held_text().data() + (end - base - size), std::size_t(size));
}

PyObject* held_ids(PyObject* self, PyObject*) {
  SessionObject* s = as_session(self);
  if (!ready(s)) return nullptr;
  const Turn turn(s);
  if (!turn) return nullptr;
  return bytes_of(s->session->held_ids(), s->session->tokens() - s->session->base().tokens);
}

PyObject* held_text(PyObject* self, PyObject*) {
  SessionObject* s = as_session(self);
  if (!ready(s)) return nullptr;
  const Turn turn(s);
  if (!turn) return nullptr;
  return bytes_of(s->session->held_text().data(), s->session->held_text().size());
}

// restore(revision, (bytes, code_points, tokens), open_text, open_ids)
PyObject* restore(PyObject* self, PyObject* args) {
  SessionObject* s = as_session(self);
  unsigned long long revision;
  Py_ssize_t bytes, code_points, tokens;
  const char *text, *ids;
  Py_ssize_t text_size, ids_size;
  if (!ready(s) || !PyArg_ParseTuple(args, "K(nnn)y#y#:restore", &revision, &bytes, &code_points, &tokens, &text, &text_size,
                                     &ids, &ids_size))
    return nullptr;
  const std::string_view open(text, std::size_t(text_size));
  if (bytes < 0 || code_points < 0 || tokens < 0 || ids_size % 4 != 0 || validate_utf8(open) != std::string_view::npos)
    return PyErr_SetString(PyExc_ValueError, "that is no state of a session"), nullptr;
  try {
    std::vector<std::uint32_t> open_ids(std::size_t(ids_size) / 4);
    if (ids_size != 0) std::memcpy(open_ids.data(), ids, std::size_t(ids_size));
    const Turn turn(s);
    if (!turn) return nullptr;
    const Position end{std::size_t(bytes), std::size_t(code_points), std::size_t(tokens)};
    s->session->restore(end, open, open_ids.data(), open_ids.size());
    s->revision = revision;
    s->prepared = false;
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
  Py_RETURN_NONE;
}

// adopt(text, ids, points): what lies before the text that is held. points: uint64 (bytes, code points, tokens) of cuts in it.
PyObject* adopt(PyObject* self, PyObject* args) {
  SessionObject* s = as_session(self);
  const char *text, *ids, *points;
  Py_ssize_t text_size, ids_size, points_size;
  if (!ready(s)) return nullptr;
  if (!PyArg_ParseTuple(args, "y#y#y#:adopt", &text, &text_size, &ids, &ids_size, &points, &points_size)) return nullptr;
  try {
    std::vector<std::uint32_t> before(std::size_t(ids_size) / 4);
    if (ids_size != 0) std::memcpy(before.data(), ids, std::size_t(ids_size));
    std::vector<std::uint64_t> numbers(std::size_t(points_size) / 8);
    if (points_size != 0) std::memcpy(numbers.data(), points, std::size_t(points_size));
    std::vector<Position> cuts;
    for (std::size_t i = 0; i + 3 <= numbers.size(); i += 3) cuts.push_back({numbers[i], numbers[i + 1], numbers[i + 2]});
    const Turn turn(s);
    if (!turn) return nullptr;
    const Position& base = s->session->base();
    if (std::size_t(text_size) != base.bytes || before.size() != base.tokens)
      return PyErr_SetString(PyExc_ValueError, "that is not what lies before the text that is held"), nullptr;
    s->session->adopt({text, std::size_t(text_size)}, before.data(), cuts.data(), cuts.size());
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
  Py_RETURN_NONE;
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

PyMethodDef methods[] = {
    {"append", erased(append), METH_FASTCALL | METH_KEYWORDS, session_append_doc},
    {"replace", erased(replace), METH_FASTCALL | METH_KEYWORDS, session_replace_doc},
    {"present", erased(present), METH_FASTCALL | METH_KEYWORDS, session_present_doc},
    {"snapshot", snapshot, METH_NOARGS, session_snapshot_doc},
    {"prepare_append", prepare_append, METH_O, "(text): whether it changes anything."},
    {"prepare_replace", prepare_replace, METH_VARARGS, "(start, text): whether it changes anything."},
    {"prepare_present", prepare_present, METH_O, "(text): whether it changes anything."},
    {"presented", presented, METH_VARARGS, "(text, add_special_tokens): the Encoding of the text that it holds."},
    {"commit", commit, METH_O, "(revision): the TokenPatch of what was prepared."},
    {"discard", discard, METH_NOARGS, "Forgets what was prepared."},
    {"prepared_begin", prepared_begin, METH_NOARGS, "Byte at which the prepared change begins to encode."},
    {"changes", changes, METH_VARARGS, "(from_bytes, from_tokens): ([(ids, text)], open_ids, open_text) of what was prepared."},
    {"text_before", text_before, METH_VARARGS, "(end, longest): bytes of the text that is held."},
    {"held_ids", held_ids, METH_NOARGS, "The ids that are held, as bytes."},
    {"held_text", held_text, METH_NOARGS, "The text that is held, as bytes."},
    {"restore", restore, METH_VARARGS, "(revision, (bytes, code_points, tokens), open_text, open_ids)"},
    {"adopt", adopt, METH_VARARGS, "(text, ids, points): what lies before the text that is held."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {
    {"text_length", get_text_length, nullptr, "Code points of the text.", nullptr},
    {"byte_length", get_byte_length, nullptr, "Bytes of its UTF-8.", nullptr},
    {"held_from", get_held_from, nullptr, "Byte from which on text and ids are held; 0: all of it.", nullptr},
    {"final_bytes", get_final_bytes, nullptr, "Bytes before the last cut: no append changes their ids.", nullptr},
    {"memory", get_memory, nullptr, "Bytes that text, ids and marks take.", nullptr},
    {"revision", get_revision, nullptr, "Number of changes so far.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_init, reinterpret_cast<void*>(init)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_doc, const_cast<char*>("SessionBase(encoder)\n--\n\nA growing text and its ids, in memory.")},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_sq_length, reinterpret_cast<void*>(length)},
    {0, nullptr}};

PyType_Spec spec = {"toktier._native.SessionBase", sizeof(SessionObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

PyStructSequence_Field patch_fields[] = {
    {"keep_tokens", "How many tokens stay as they were."},
    {"replacement_ids", "The ids behind them, as an Encoding."},
    {"revision", "The revision of the session after the change."},
    {nullptr, nullptr}};
PyStructSequence_Desc patch_description = {"toktier._native.TokenPatch", "What a change made of the tokens of a session.",
                                           patch_fields, 3};

}  // namespace

bool register_session(PyObject* module) {
  const struct {
    PyObject** slot;
    const char* name;
  } interned[] = {{&name_text, "text"}, {&name_start, "start"}, {&name_expected, "expected_revision"},
                  {&name_add, "add_special_tokens"}};
  for (const auto& entry : interned)
    if (*entry.slot == nullptr && (*entry.slot = PyUnicode_InternFromString(entry.name)) == nullptr) return false;
  static PyObject* const type = PyType_FromSpec(&spec);
  if (patch_type == nullptr) patch_type = PyStructSequence_NewType(&patch_description);
  return type != nullptr && patch_type != nullptr && PyModule_AddObjectRef(module, "SessionBase", type) == 0 &&
         PyModule_AddObjectRef(module, "TokenPatch", reinterpret_cast<PyObject*>(patch_type)) == 0;
}

}  // namespace toktier::bind
