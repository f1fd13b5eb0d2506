// `_native.device_tables`, `device_facts`, `unsuitable`, `transition_monoid`: what a device would be given of a program. None of
// them needs a device. Running one is another file's.
#include "gpu/tables.h"

#include "bind/bind.h"
#include "bind/program.h"
#include "gpu/monoid.h"

namespace nb = nanobind;

namespace toktier::bind {

namespace {

PyObject* unsuitable_type = nullptr;

void set_unsuitable(const gpu::Unsuitable& error) {
  const Ref value(PyObject_CallFunction(unsuitable_type, "s", error.what.c_str()));
  const Ref code(PyUnicode_FromString(error.code.c_str()));
  if (!value || !code || PyObject_SetAttrString(value.get(), "code", code.get()) != 0) return;
  PyErr_SetObject(unsuitable_type, value.get());
}

nb::bytes bytes_of(const std::vector<std::uint8_t>& data) {
  return nb::bytes(reinterpret_cast<const char*>(data.data()), data.size());
}

gpu::DeviceTables tables_of(const ProgramOwner& owner) {
  nb::gil_scoped_release released;
  return gpu::make_device_tables(owner.program());
}

nb::bytes device_tables(const ProgramOwner& owner) { return bytes_of(tables_of(owner).image); }

nb::dict device_facts(const ProgramOwner& owner) {
  const gpu::DeviceTables tables = tables_of(owner);
  nb::dict out;
  out["bytes"] = tables.image.size();
  out["left_elements"] = tables.left_elements;
  out["right_elements"] = tables.right_elements;
  return out;
}

nb::object unsuitable(const ProgramOwner& owner) {
  std::optional<gpu::Unsuitable> found;
  {
    nb::gil_scoped_release released;
    found = gpu::find_unsuitable(owner.program());
  }
  if (!found) return nb::none();
  return nb::make_tuple(found->code.c_str(), found->what.c_str());
}

nb::object transition_monoid(const nb::bytes& table, std::uint32_t n_class, std::uint32_t n_states, std::uint32_t start) {
  const auto* const next = reinterpret_cast<const std::uint8_t*>(table.c_str());
  bool good = n_class <= 256 && n_states <= 256 && start < n_states && table.size() == std::size_t{n_class} * n_states;
  for (std::size_t i = 0; good && i < table.size(); ++i) good = next[i] < n_states;
  if (!good) throw nb::value_error("the table does not fit its sizes");
  const std::optional<gpu::Monoid> m = gpu::make_monoid(next, n_class, n_states, start);
  if (!m) return nb::none();
  nb::dict out;
  out["n_elements"] = m->n_elements;
  out["of_class"] = bytes_of(m->of_class);
  out["of_first"] = bytes_of(m->of_first);
  out["compose"] = bytes_of(m->compose);
  out["state"] = bytes_of(m->state);
  out["functions"] = bytes_of(m->functions);
  return out;
}

}  // namespace

void register_gpu_tables(nb::module_& m) {
  if (unsuitable_type == nullptr) {
    unsuitable_type = PyErr_NewExceptionWithDoc("toktier._native.UnsuitableProgram", "A program that no device can run.",
                                                PyExc_ValueError, nullptr);
    if (unsuitable_type == nullptr) throw nb::python_error();
    nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
      try {
        std::rethrow_exception(pointer);
      } catch (const gpu::Unsuitable& error) {
        set_unsuitable(error);
      }
    });
  }
  m.attr("UnsuitableProgram") = nb::borrow(unsuitable_type);
  m.def("device_tables", &device_tables, nb::arg("program"));
  m.def("device_facts", &device_facts, nb::arg("program"));
  m.def("unsuitable", &unsuitable, nb::arg("program"));
  m.def("transition_monoid", &transition_monoid, nb::arg("table"), nb::arg("n_class"), nb::arg("n_states"), nb::arg("start"));
}

}  // namespace toktier::bind
