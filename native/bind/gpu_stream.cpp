// The protocol: `__cuda_stream__` is, or gives, a tuple of its version (0) and the handle.
#include "bind/gpu_stream.h"

#include <string>

namespace nb = nanobind;

namespace toktier::bind {

namespace {

constexpr const char* kProtocol = "__cuda_stream__";
constexpr const char* kExpected =
    "expected None, the handle of a stream (an int from 0 on) or an object with __cuda_stream__, not ";

[[noreturn]] void refuse(nb::handle given) {
  throw nb::type_error((kExpected + std::string(Py_TYPE(given.ptr())->tp_name)).c_str());
}

gpu::CuStream of_number(nb::handle number) {
  const std::size_t handle = PyLong_AsSize_t(number.ptr());
  if (handle == static_cast<std::size_t>(-1) && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw nb::value_error("the handle of a stream is an int from 0 on that fits an address");
  }
  return reinterpret_cast<gpu::CuStream>(handle);
}

bool is_number(nb::handle given) { return PyLong_Check(given.ptr()) != 0 && PyBool_Check(given.ptr()) == 0; }

}  // namespace

std::optional<gpu::CuStream> stream_of(nb::handle given) {
  if (given.is_none()) return std::nullopt;
  if (is_number(given)) return of_number(given);
  if (!nb::hasattr(given, kProtocol)) refuse(given);
  nb::object told = given.attr(kProtocol);
  if (PyCallable_Check(told.ptr()) != 0) told = told();
  if (PyTuple_Check(told.ptr()) == 0 || PyTuple_GET_SIZE(told.ptr()) != 2 || !is_number(told[1])) refuse(given);
  return of_number(told[1]);
}

}  // namespace toktier::bind
