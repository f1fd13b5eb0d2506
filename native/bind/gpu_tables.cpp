// `_native.device_tables`, `device_facts`, `unsuitable`, `transition_monoid`: what a device would be given of a program. None of
// them needs a device. Running one is another file's.
#include "gpu/tables.h"

#include "bind/bind.h"
#include "bind/coded_error.h"
#include "bind/program.h"
#include "gpu/monoid.h"

namespace nb = nanobind;

namespace toktier::bind {

namespace {

CodedError unsuitable_program;

void set_unsuitable(const gpu::Unsuitable& found) { unsuitable_program.set(found.what.c_str(), found.code.c_str()); }

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
  unsuitable_program.add_to<gpu::Unsuitable, set_unsuitable>(m, "UnsuitableProgram", "A program that no device can run.",
                                                             PyExc_ValueError);
  m.def("device_tables", &device_tables, nb::arg("program"));
  m.def("device_facts", &device_facts, nb::arg("program"));
  m.def("unsuitable", &unsuitable, nb::arg("program"));
  m.def("transition_monoid", &transition_monoid, nb::arg("table"), nb::arg("n_class"), nb::arg("n_states"), nb::arg("start"));
}

}  // namespace toktier::bind
