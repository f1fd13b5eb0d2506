// `_native.SharedTokenCache`: the shared cache of native/speculative as users call it. Insert runs without the GIL. Propose keeps
// it: it waits for nobody and takes less than a microsecond, which handing the GIL over would cost.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bind/errors.h"
#include "bind/ids.h"
#include "bind/signature.h"
#include "bind/speculative.h"
#include "bind/speculative_scope_key.h"
#include "speculative/shared_cache.h"

namespace toktier::bind {

namespace {

using speculative::SharedCache;

struct CacheObject {
  PyObject_HEAD
  SharedCache* cache;
  Py_ssize_t budget_bytes;
};

SharedCache& cache_of(PyObject* self) { return *reinterpret_cast<CacheObject*>(self)->cache; }

PyObject *name_scope, *name_tokens, *name_history, *name_max_len, *name_out;

const Signature kInsert{"insert", {&name_scope, &name_tokens}, 2, 2};
const Signature kPropose{"propose", {&name_scope, &name_history, &name_max_len}, 3, 3};
const Signature kProposeInto{"propose_into", {&name_scope, &name_history, &name_out}, 3, 3};

bool all_given(const Signature& s, PyObject* const* given) {
  for (Py_ssize_t i = 0; i < s.count; ++i)
    if (given[i] == nullptr)
      return PyErr_Format(PyExc_TypeError, "%s() is missing the argument '%U'", s.method, *s.names[i]), false;
  return true;
}

// Some tokens, without a heap for the usual numbers. Not zeroed: a caller who wants all there are asks for room that takes no
// memory until it is written.
class Tokens {
 public:
  explicit Tokens(std::size_t n) : many_(n > kFew ? std::make_unique_for_overwrite<std::uint32_t[]>(n) : nullptr) {}
  std::uint32_t* data() { return many_ ? many_.get() : few_; }

 private:
  static constexpr std::size_t kFew = 128;
  std::uint32_t few_[kFew];
  std::unique_ptr<std::uint32_t[]> many_;
};

// What a proposal needs of scope and history.
class Question {
 public:
  explicit Question(SharedCache& cache) : cache_(cache), last_(cache.geometry().key_len) {}

  // False with an error set.
  bool take(PyObject* scope, PyObject* history) {
    if (!take_scope_key(scope, key_)) return false;
    const int taken = take_last_tokens(history, cache_.geometry().key_len, last_.data());
    enough_ = taken == 1;
    return taken >= 0;
  }
  std::size_t ask(std::uint32_t* out, std::size_t room) {
    return cache_.propose(key_, enough_ ? last_.data() : nullptr, out, room);
  }

 private:
  SharedCache& cache_;
  std::string key_;
  Tokens last_;
  bool enough_ = false;  // the history has key_len tokens
};

PyObject* insert(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  PyObject* a[6] = {};
  if (!bind_arguments(kInsert, args, n, keywords, a) || !all_given(kInsert, a)) return nullptr;
  try {
    std::string key;
    std::vector<std::uint32_t> tokens;
    if (!take_scope_key(a[0], key) || !take_tokens(a[1], tokens)) return nullptr;
    const auto marker = std::find(tokens.begin(), tokens.end(), speculative::kMarker);
    if (marker != tokens.end()) return set_marker_token(marker - tokens.begin()), nullptr;
    std::size_t stored;
    {
      const WithoutGil released(true);
      stored = cache_of(self).insert(key, tokens);
    }
    return PyLong_FromSize_t(stored);
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
}

PyObject* propose(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  PyObject* a[6] = {};
  if (!bind_arguments(kPropose, args, n, keywords, a) || !all_given(kPropose, a)) return nullptr;
  const Py_ssize_t wanted = take_count(a[2], "max_len");
  if (wanted < 0) return nullptr;
  try {
    SharedCache& cache = cache_of(self);
    Question question(cache);
    if (!question.take(a[0], a[1])) return nullptr;
    const std::size_t room = std::min(std::size_t(wanted), cache.geometry().ring);
    Tokens copy(room);
    const std::size_t copied = question.ask(copy.data(), room);
    return copied == 0 ? Py_NewRef(Py_None) : list_of_ids(copy.data(), Py_ssize_t(copied));
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
}

PyObject* propose_into(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* keywords) {
  PyObject* a[6] = {};
  if (!bind_arguments(kProposeInto, args, n, keywords, a) || !all_given(kProposeInto, a)) return nullptr;
  try {
    Question question(cache_of(self));  // before the buffer, because what it asks may run any code
    Py_buffer view;
    if (!question.take(a[0], a[1])) return nullptr;
    const bool is_buffer = PyObject_GetBuffer(a[2], &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) == 0;
    const bool fits = is_buffer && is_id_buffer(view);
    const std::size_t room = fits ? std::size_t(view.len) / sizeof(std::uint32_t) : 0;
    const std::size_t copied = fits ? question.ask(static_cast<std::uint32_t*>(view.buf), room) : 0;
    if (is_buffer) PyBuffer_Release(&view);
    if (fits) return PyLong_FromSize_t(copied);
    if (!is_buffer && !PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError) &&
        !PyErr_ExceptionMatches(PyExc_BufferError))
      return nullptr;  // not what it is, but what happened
    PyErr_Format(PyExc_TypeError, "out must be a writable, contiguous buffer of uint32, of one dimension, not %.100s",
                 Py_TYPE(a[2])->tp_name);
    return nullptr;
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
}

PyObject* remove(PyObject* self, PyObject* scope) {
  try {
    std::string key;
    if (!take_scope_key(scope, key)) return nullptr;
    bool removed;
    {
      const WithoutGil released(true);  // giving memory back takes milliseconds
      removed = cache_of(self).remove(key);
    }
    return PyBool_FromLong(removed);
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
}

PyObject* clear(PyObject* self, PyObject*) {
  const WithoutGil released(true);
  cache_of(self).clear();
  return Py_None;
}

PyObject* stored(PyObject* self, PyObject* scope) {
  try {
    std::string key;
    return take_scope_key(scope, key) ? PyLong_FromUnsignedLongLong(cache_of(self).stored(key)) : nullptr;
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
}

int contains(PyObject* self, PyObject* scope) {
  try {
    std::string key;
    return take_scope_key(scope, key) ? int(cache_of(self).contains(key)) : -1;
  } catch (...) {
    return set_from_current_exception(), -1;
  }
}

PyObject* stats(PyObject* self, PyObject*) {
  const speculative::CacheStats s = cache_of(self).stats();
  const std::pair<const char*, std::uint64_t> numbers[] = {
      {"scopes", s.scopes},       {"bytes", s.bytes},
      {"stored_tokens", s.stored},  {"held_tokens", s.held},
      {"dropped_scopes", s.dropped}, {"inserts", s.inserts},
      {"inserted_tokens", s.inserted_tokens}, {"proposals", s.proposals},
      {"copies", s.copies}, {"proposed_tokens", s.proposed_tokens},
  };
  Ref all(PyDict_New());
  for (const auto& [name, number] : numbers) {
    const Ref value(all ? PyLong_FromUnsignedLongLong(number) : nullptr);
    if (!value || PyDict_SetItemString(all.get(), name, value.get()) != 0) return nullptr;
  }
  return all.release();
}

template <std::size_t (*Read)(const speculative::Geometry&)>
PyObject* of_geometry(PyObject* self, void*) {
  return PyLong_FromSize_t(Read(cache_of(self).geometry()));
}
PyObject* get_budget_bytes(PyObject* self, void*) {
  return PyLong_FromSsize_t(reinterpret_cast<CacheObject*>(self)->budget_bytes);
}

// In tp_new, so that no cache is ever seen without its memory.
PyObject* make(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"budget_bytes", "max_scopes", "key_len", nullptr};
  PyObject* given[] = {nullptr, nullptr, nullptr};
  Py_ssize_t numbers[] = {0, 4, 8};
  const std::size_t least[] = {speculative::kLeastPerScope, 1, 1};
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|OO:SharedTokenCache", const_cast<char**>(names), &given[0], &given[1],
                                   &given[2]))
    return nullptr;
  for (int i = 0; i < 3; ++i)
    if (given[i] != nullptr && (numbers[i] = take_count(given[i], names[i], least[i])) < 0) return nullptr;
  try {
    const auto geometry = speculative::geometry_of(std::size_t(numbers[0]), std::size_t(numbers[1]), std::size_t(numbers[2]));
    auto cache = std::make_unique<SharedCache>(geometry);
    auto* const self = reinterpret_cast<CacheObject*>(type->tp_alloc(type, 0));
    if (self == nullptr) return nullptr;
    self->cache = cache.release();
    self->budget_bytes = numbers[0];
    return reinterpret_cast<PyObject*>(self);
  } catch (const speculative::GeometryFault& fault) {
    return set_config_invalid(fault.what.c_str(), fault.remedy.c_str()), nullptr;
  } catch (...) {
    return set_from_current_exception(), nullptr;
  }
}

void dealloc(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  delete reinterpret_cast<CacheObject*>(self)->cache;
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"insert", erased(insert), METH_FASTCALL | METH_KEYWORDS, "insert($self, scope, tokens)\n--\n\nStores a finished request."},
    {"propose", erased(propose), METH_FASTCALL | METH_KEYWORDS,
     "propose($self, scope, history, max_len)\n--\n\nWhat followed the last tokens of a history, or None."},
    {"propose_into", erased(propose_into), METH_FASTCALL | METH_KEYWORDS,
     "propose_into($self, scope, history, out)\n--\n\nThe same, written into a buffer; the number of tokens."},
    {"remove", remove, METH_O, "remove($self, scope, /)\n--\n\nDrops a scope; whether there was one."},
    {"clear", clear, METH_NOARGS, "clear($self)\n--\n\nDrops every scope."},
    {"stored", stored, METH_O, "stored($self, scope, /)\n--\n\nRing tokens ever written to a scope."},
    {"stats", stats, METH_NOARGS, "stats($self)\n--\n\nNumbers of scopes, tokens, calls and bytes."},
    {nullptr, nullptr, 0, nullptr}};

using speculative::Geometry;
PyGetSetDef properties[] = {
    {"budget_bytes", get_budget_bytes, nullptr, "As it was given.", nullptr},
    {"max_scopes", of_geometry<[](const Geometry& g) { return g.max_scopes; }>, nullptr, "That may be there at once.", nullptr},
    {"key_len", of_geometry<[](const Geometry& g) { return g.key_len; }>, nullptr, "Tokens that must match.", nullptr},
    {"slots", of_geometry<[](const Geometry& g) { return g.slots; }>, nullptr, "Of the table of a scope.", nullptr},
    {"ring_tokens", of_geometry<[](const Geometry& g) { return g.ring; }>, nullptr, "That a scope holds.", nullptr},
    {"bytes_per_scope", of_geometry<[](const Geometry& g) { return g.bytes(); }>, nullptr, "Taken when it is created.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_sq_contains, reinterpret_cast<void*>(contains)},
    {Py_tp_doc, const_cast<char*>("SharedTokenCache(budget_bytes, max_scopes=4, key_len=8)\n--\n\n"
                                  "Tokens of finished requests, to copy from.")},
    {0, nullptr}};

PyType_Spec spec = {"toktier._native.SharedTokenCache", sizeof(CacheObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

bool register_shared_token_cache(PyObject* module) {
  if (!intern({{&name_scope, "scope"}, {&name_tokens, "tokens"}, {&name_history, "history"}, {&name_max_len, "max_len"},
               {&name_out, "out"}}))
    return false;
  static PyObject* const type = PyType_FromSpec(&spec);
  return type != nullptr && PyModule_AddObjectRef(module, "SharedTokenCache", type) == 0;
}

}  // namespace toktier::bind
