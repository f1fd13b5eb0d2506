// Faults of the engine as Python exceptions: toktier.errors where a user can meet them. Each function sets the error indicator.
#pragma once
#include <cstddef>
#include <cstdint>

#include "bind/bind.h"
#include "bind/text.h"

namespace toktier::bind {

// `item`: index in a batch, or -1. `is_str`: the position is of a code point, else of a byte.
void set_invalid_text(const TextFault& fault, Py_ssize_t item = -1);
void set_not_a_text(PyObject* object, Py_ssize_t item = -1);  // TypeError
void set_unsupported_config(const char* message);
void set_invalid_token(PyObject* token, Py_ssize_t index);
void set_marker_token(Py_ssize_t index);                           // InvalidToken: an id that native/speculative keeps to itself
void set_config_invalid(const char* message, const char* remedy);  // `remedy` may be null
void set_session_conflict(PyObject* expected, PyObject* found);  // integers
void set_session_needs_text(std::size_t held_from);  // code points
void set_internal_error(const char* message);

// To be called in a catch block: turns what the engine throws into the Python error.
void set_from_current_exception(Py_ssize_t item = -1);

}  // namespace toktier::bind
