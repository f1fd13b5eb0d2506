// Ids that a caller gives: a uint32 buffer or any iterable of integers.
#pragma once
#include <cstdint>
#include <vector>

#include "bind/bind.h"

namespace toktier::bind {

// False with InvalidToken (not an integer from 0 to 2**32 - 1) or TypeError set. May throw std::bad_alloc.
bool take_ids(PyObject* object, std::vector<std::uint32_t>& out);
bool is_id_buffer(const Py_buffer& view);  // taken with its format: one dimension of uint32
bool take_id(PyObject* object, Py_ssize_t index, std::uint32_t& out);

// A new list of int.
PyObject* list_of_ids(const std::uint32_t* ids, Py_ssize_t n);

}  // namespace toktier::bind
