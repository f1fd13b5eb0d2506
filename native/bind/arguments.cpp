// `_native.text_of`, `_native.ids_of`, `_native.text_weight`: what a caller gave, taken as the engine takes it, for callers that
// hand it to another engine. Whoever serves, the same arguments are taken and the same errors raised.
#include <vector>

#include "bind/bind.h"
#include "bind/errors.h"
#include "bind/ids.h"
#include "bind/text.h"

namespace nb = nanobind;

namespace toktier::bind {

namespace {

nb::object text_of(nb::handle text, Py_ssize_t item) {
  Ref taken = take_text(text.ptr(), item);
  if (!taken) throw nb::python_error();
  TextBuffer buffer;
  std::string_view utf8;
  TextFault fault{};
  if (!utf8_of(taken.get(), transcode_lanes(best_level()), buffer, utf8, fault)) {
    set_invalid_text(fault, item);
    throw nb::python_error();
  }
  if (PyUnicode_Check(taken.get())) return nb::steal(taken.release());
  PyObject* decoded = PyUnicode_DecodeUTF8(utf8.data(), Py_ssize_t(utf8.size()), nullptr);
  if (decoded == nullptr) throw nb::python_error();
  return nb::steal(decoded);
}

nb::object ids_of(nb::handle ids) {
  std::vector<std::uint32_t> taken;
  if (!take_ids(ids.ptr(), taken)) throw nb::python_error();
  PyObject* list = list_of_ids(taken.data(), Py_ssize_t(taken.size()));
  if (list == nullptr) throw nb::python_error();
  return nb::steal(list);
}

Py_ssize_t weight_of(nb::handle text) {
  const Ref taken = take_text(text.ptr());
  if (!taken) throw nb::python_error();
  return text_weight(taken.get());
}

}  // namespace

void register_arguments(nb::module_& m) {
  m.def("text_of", &text_of, nb::arg("text").none(), nb::arg("item") = -1);
  m.def("ids_of", &ids_of, nb::arg("ids").none());
  m.def("text_weight", &weight_of, nb::arg("text").none());
}

}  // namespace toktier::bind
