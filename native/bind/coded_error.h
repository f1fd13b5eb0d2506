// A type of Python exceptions with a `code`, for faults of native/gpu: made once, and raised for what nanobind functions throw.
// Errors of toktier.errors, which users meet, are bind/errors.h.
#pragma once
#include <exception>
#include <string>

#include "bind/bind.h"

namespace toktier::bind {

class CodedError {
 public:
  void set(const char* message, const char* code) const {
    const Ref value(PyObject_CallFunction(type_, "s", message));
    const Ref name(PyUnicode_FromString(code));
    if (!value || !name || PyObject_SetAttrString(value.get(), "code", name.get()) != 0) return;
    PyErr_SetObject(type_, value.get());
  }

  // `raise` sets the Python error for a thrown `Fault`. The module may be made again in one process: the type is not.
  template <typename Fault, void (*raise)(const Fault&)>
  void add_to(nanobind::module_& m, const char* name, const char* doc, PyObject* base) {
    if (type_ == nullptr) {
      type_ = PyErr_NewExceptionWithDoc((std::string("toktier._native.") + name).c_str(), doc, base, nullptr);
      if (type_ == nullptr) throw nanobind::python_error();
      nanobind::register_exception_translator([](const std::exception_ptr& pointer, void*) {
        try {
          std::rethrow_exception(pointer);
        } catch (const Fault& fault) {
          raise(fault);
        }
      });
    }
    m.attr(name) = nanobind::borrow(type_);
  }

 private:
  PyObject* type_ = nullptr;
};

}  // namespace toktier::bind
