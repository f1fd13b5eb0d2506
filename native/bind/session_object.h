// What the files of `_native.SessionBase` share: the object, who may work on it, and the work itself. session.cpp has the type
// and the calls of users, session_change.cpp what every change does, session_halves.cpp the calls of stores.
//
// One change at a time: a thread that comes while another one is at it waits. The same thread may come again, because making
// Python objects can run anybody's finalizers: that is refused. A child that was forked meanwhile waits for nobody: what the
// other thread had prepared is let go of, and what was committed is whole, because commits hold the GIL.
#pragma once
#include <sys/types.h>

#include <cstdint>

#include "bind/bind.h"
#include "bind/program.h"
#include "session/session.h"

namespace toktier::bind {

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

inline SessionObject* as_session(PyObject* object) { return reinterpret_cast<SessionObject*>(object); }

// Whether __init__ was called; else RuntimeError is set.
bool ready(const SessionObject* s);

// The session for one change, or for a look at more than a number. Taken and given back with the GIL held. False: not taken, and
// an error is set.
class Turn {
 public:
  explicit Turn(SessionObject* s);
  ~Turn() {
    if (s_ != nullptr) s_->busy = 0;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  explicit operator bool() const { return s_ != nullptr; }

 private:
  SessionObject* s_ = nullptr;
};

// An integer that a caller gave as `start`, before the turn: it may run any code when it is asked for its number. False with
// TypeError or ValueError set.
bool take_number(PyObject* object, Py_ssize_t& start);
// Within the turn. False with ValueError set.
bool is_in_text(const SessionObject* s, Py_ssize_t start);

// All of these: within the turn.
enum class Change { append, replace, present };
// 1 prepared, 0 the text is the same, -1 with an error set. `start`: code point of a replacement. The text is of take_text().
int prepare(SessionObject* s, Change change, std::size_t start, PyObject* text);
// The TokenPatch of what was prepared, which becomes revision `revision`; null with an error set.
PyObject* commit_as(SessionObject* s, std::uint64_t revision);
PyObject* unchanged(const SessionObject* s);  // the TokenPatch of no change
// Refuses a look at text or ids before what is held.
bool holds_all(const SessionObject* s);
// All ids as an Encoding of `text`, or of a copy of the session's own (null); within the tokens of the template, if asked for.
PyObject* encoding_of(SessionObject* s, PyObject* text, bool add_special_tokens);

bool register_token_patch(PyObject* module);
extern PyMethodDef session_halves[];  // of the type's table, null-terminated

}  // namespace toktier::bind
