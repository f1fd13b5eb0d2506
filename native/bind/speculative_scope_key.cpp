// Reads the four parts. Numbers that 64 bits hold are written as such, others in decimal, each under a kind of its own.
#include "bind/speculative_scope_key.h"

#include <cstdint>

namespace toktier::bind {

namespace {

constexpr Py_ssize_t kParts = 4;
constexpr std::size_t kUsualBytes = 160;  // one allocation for names of usual length
constexpr const char* kPartNames[kParts] = {"model", "tokenizer", "adapter", "tenant"};

void put(char kind, const char* bytes, std::size_t n, std::string& out) {
  const std::uint64_t length = n;
  out.push_back(kind);
  out.append(reinterpret_cast<const char*>(&length), sizeof length);
  out.append(bytes, n);
}

bool put_str(PyObject* part, std::string& out) {
  Py_ssize_t n;
  if (const char* utf8 = PyUnicode_AsUTF8AndSize(part, &n)) return put('s', utf8, std::size_t(n), out), true;
  if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return false;
  PyErr_Clear();
  const Ref bytes(PyUnicode_AsEncodedString(part, "utf-8", "surrogatepass"));  // a key is compared, not shown
  if (!bytes) return false;
  put('s', PyBytes_AS_STRING(bytes.get()), std::size_t(PyBytes_GET_SIZE(bytes.get())), out);
  return true;
}

bool put_int(PyObject* part, std::string& out) {
  int overflow = 0;
  const std::int64_t value = PyLong_AsLongLongAndOverflow(part, &overflow);
  if (value == -1 && PyErr_Occurred()) return false;
  if (overflow == 0) return put('i', reinterpret_cast<const char*>(&value), sizeof value, out), true;
  const Ref digits(PyLong_Type.tp_repr(part));
  Py_ssize_t n;
  const char* const text = digits ? PyUnicode_AsUTF8AndSize(digits.get(), &n) : nullptr;
  if (text == nullptr) return false;
  put('d', text, std::size_t(n), out);
  return true;
}

bool put_part(PyObject* part, const char* name, std::string& out) {
  if (PyUnicode_Check(part)) return put_str(part, out);
  if (PyLong_Check(part) && !PyBool_Check(part)) return put_int(part, out);
  PyErr_Format(PyExc_TypeError, "%s of a scope must be str or int, not %.100s", name, Py_TYPE(part)->tp_name);
  return false;
}

}  // namespace

bool take_scope_key(PyObject* scope, std::string& out) {
  out.clear();
  out.reserve(kUsualBytes);
  if (!PyTuple_Check(scope) || PyTuple_GET_SIZE(scope) != kParts) {
    PyErr_Format(PyExc_TypeError, "scope must be a tuple (model, tokenizer, adapter, tenant), not %.100s%s",
                 Py_TYPE(scope)->tp_name, PyTuple_Check(scope) ? " of another length" : "");
    return false;
  }
  for (Py_ssize_t i = 0; i < kParts; ++i)
    if (!put_part(PyTuple_GET_ITEM(scope, i), kPartNames[i], out)) return false;
  return true;
}

}  // namespace toktier::bind
