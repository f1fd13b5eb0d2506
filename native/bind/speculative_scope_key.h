// The key of a scope as bytes: its four parts, each behind its kind and length, so that no two keys share any. Compared whole.
#pragma once
#include <string>

#include "bind/bind.h"

namespace toktier::bind {

// `scope`: a tuple (model, tokenizer, adapter, tenant) of str and int. False with TypeError set.
bool take_scope_key(PyObject* scope, std::string& out);

}  // namespace toktier::bind
