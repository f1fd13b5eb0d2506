// What sessions and the prefix cache need of the encoder that they belong to.
#pragma once
#include <cstddef>

#include "bind/bind.h"

namespace toktier::bind {

// The Program of an EncoderBase, borrowed; null with TypeError set where it is none, or has none.
PyObject* program_of_encoder(PyObject* encoder);
// One more text that the engine served, of so many bytes. `uncut`: it left a long stretch without a place to cut.
void count_session_call(PyObject* encoder, std::size_t bytes, bool uncut);

// One more text that the engine served, a part of so many bytes of which was encoded.
void count_call(PyObject* encoder, std::size_t bytes);

}  // namespace toktier::bind
