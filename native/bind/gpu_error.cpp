// The exception type and its translation.
#include "bind/gpu_error.h"

#include <exception>

namespace nb = nanobind;

namespace toktier::bind {

namespace {

PyObject* gpu_error_type = nullptr;

}  // namespace

void set_gpu_error(const gpu::GpuError& error) {
  const Ref value(PyObject_CallFunction(gpu_error_type, "s", error.what()));
  const Ref code(PyUnicode_FromString(gpu::fault_code(error.fault())));
  if (!value || !code || PyObject_SetAttrString(value.get(), "code", code.get()) != 0) return;
  PyErr_SetObject(gpu_error_type, value.get());
}

void register_gpu_error(nb::module_& m) {
  if (gpu_error_type == nullptr) {
    gpu_error_type = PyErr_NewExceptionWithDoc("toktier._native.GpuError", "The GPU engine cannot be used; `code` says why.",
                                               PyExc_RuntimeError, nullptr);
    if (gpu_error_type == nullptr) throw nb::python_error();
    nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
      try {
        std::rethrow_exception(pointer);
      } catch (const gpu::GpuError& error) {
        set_gpu_error(error);
      }
    });
  }
  m.attr("GpuError") = nb::borrow(gpu_error_type);
}

}  // namespace toktier::bind
