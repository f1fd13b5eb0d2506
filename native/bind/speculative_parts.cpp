// `_native.PromptLookup`, `_native.CopyWindow`, `_native.MissBackoff`: what a request keeps for itself (native/speculative).
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "bind/errors.h"
#include "bind/ids.h"
#include "bind/speculative.h"
#include "speculative/copy_window.h"

namespace nb = nanobind;

namespace toktier::bind {

namespace {

using speculative::CopyWindow;
using speculative::MissBackoff;

std::size_t count_of(nb::handle object, const char* name, std::size_t least) {
  const Py_ssize_t n = take_count(object.ptr(), name, least);
  if (n < 0) throw nb::python_error();
  if (std::size_t(n) < least) {
    const std::string expected = ": expected " + std::to_string(least) + " or more";
    set_config_invalid((std::string(name) + " is " + std::to_string(n) + expected).c_str(), nullptr);
    throw nb::python_error();
  }
  return std::size_t(n);
}

void init_lookup(LookupOwner* self, nb::handle key_len) { new (self) LookupOwner(count_of(key_len, "key_len", 1)); }

void append(LookupOwner& self, nb::handle tokens) {
  std::vector<std::uint32_t> taken;
  if (!take_tokens(tokens.ptr(), taken)) throw nb::python_error();
  const Locked held(self.mutex);
  const WithoutGil released(Py_ssize_t(taken.size()) >= kReleaseGilFromTokens);
  self.lookup.append(taken);
}

void truncate(LookupOwner& self, nb::handle length) {
  const std::size_t wanted = count_of(length, "length", 0);
  const Locked held(self.mutex);
  const std::size_t size = self.lookup.history().size();
  if (wanted > size)
    throw nb::value_error(("length is " + std::to_string(wanted) + ": the history has " + std::to_string(size)).c_str());
  const WithoutGil released(Py_ssize_t(size - wanted) >= kReleaseGilFromTokens);
  self.lookup.truncate(wanted);
}

// What `read` gives. Lists are made of a copy, when the lock is free again: whoever makes a Python object may run the garbage
// collector, and that a finalizer, which may ask the same lookup.
template <typename Read>
std::vector<std::uint32_t> copy_of(LookupOwner& self, Read read) {
  const Locked held(self.mutex);
  const std::span<const std::uint32_t> tokens = read(self.lookup);
  return {tokens.begin(), tokens.end()};
}

nb::object list_of(const std::vector<std::uint32_t>& tokens) {
  PyObject* const list = list_of_ids(tokens.data(), Py_ssize_t(tokens.size()));
  if (list == nullptr) throw nb::python_error();
  return nb::steal(list);
}

nb::object propose(LookupOwner& self, nb::handle max_len) {
  const std::size_t room = count_of(max_len, "max_len", 0);
  const auto found = copy_of(self, [room](const auto& lookup) { return lookup.propose(room); });
  return found.empty() ? nb::none() : list_of(found);
}

nb::object history(LookupOwner& self) {
  return list_of(copy_of(self, [](const auto& lookup) { return lookup.history(); }));
}

template <typename Read>
auto locked(Read read) {
  return [read](LookupOwner& self) {
    const Locked held(self.mutex);
    return read(self.lookup);
  };
}

void init_window(CopyWindow* self, nb::handle start, nb::handle least, nb::handle most) {
  const std::size_t lowest = count_of(least, "minimum", 1), highest = count_of(most, "maximum", lowest);
  new (self) CopyWindow(count_of(start, "start", 0), lowest, highest);
}

}  // namespace

LookupOwner* lookup_of(PyObject* object) {
  LookupOwner* owner = nullptr;
  return nb::try_cast<LookupOwner*>(nb::handle(object), owner, false) ? owner : nullptr;
}

void register_speculative_parts(nb::module_& m) {
  nb::class_<LookupOwner>(m, "PromptLookup", nb::is_final(),
                          "The history of one request, and where its last tokens stood before.")
      // none(): that None is refused by the functions, which say what they expect.
      .def("__init__", &init_lookup, nb::arg("key_len").none())
      .def("append", &append, nb::arg("tokens").none())
      .def("truncate", &truncate, nb::arg("length").none())
      .def("propose", &propose, nb::arg("max_len").none())
      .def("history", &history)
      .def("__len__", locked([](const auto& lookup) { return lookup.history().size(); }))
      .def_prop_ro("key_len", locked([](const auto& lookup) { return lookup.key_len(); }))
      .def_prop_ro("memory", locked([](const auto& lookup) { return lookup.memory(); }));
  nb::class_<CopyWindow>(m, "CopyWindow", nb::is_final(), "How many tokens the next copy may propose.")
      .def("__init__", &init_window, nb::arg("start").none() = 2, nb::arg("minimum").none() = 1,
           nb::arg("maximum").none() = 8)
      .def_prop_ro("current", &CopyWindow::current)
      .def(
          "record",
          [](CopyWindow& self, nb::handle proposed, nb::handle accepted) {
            self.record(count_of(proposed, "proposed", 0), count_of(accepted, "accepted", 0));
          },
          nb::arg("proposed").none(), nb::arg("accepted").none());
  nb::class_<MissBackoff>(m, "MissBackoff", nb::is_final(), "How many rounds to propose nothing after copies that were refused.")
      .def(
          "__init__", [](MissBackoff* self, nb::handle cap) { new (self) MissBackoff(count_of(cap, "cap", 0)); },
          nb::arg("cap").none() = 16)
      .def_prop_ro("pause", &MissBackoff::pause)
      .def("skip", &MissBackoff::skip)
      .def(
          "record",
          [](MissBackoff& self, nb::handle proposed, nb::handle accepted) {
            self.record(count_of(proposed, "proposed", 0), count_of(accepted, "accepted", 0));
          },
          nb::arg("proposed").none(), nb::arg("accepted").none());
}

}  // namespace toktier::bind
