// The calls of stores on a session: a change in two halves, between which a store writes; what the prepared one makes of the text
// behind a point; and beginning where another process left off.
#include <algorithm>
#include <cstring>
#include <vector>

#include "bind/errors.h"
#include "bind/session_object.h"
#include "bind/text.h"

namespace toktier::bind {

namespace {

// Text that a step of a store spans at the most; near the end of a change steps are as long as what comes behind them, down to
// the least: an edit near the end finds a step near it.
constexpr std::size_t kLongestStep = 1 << 16, kShortestStep = 1 << 10;

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

}  // namespace

PyMethodDef session_halves[] = {
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

}  // namespace toktier::bind
