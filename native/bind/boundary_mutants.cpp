// `_native.boundary_mutants`, `_native.token_mutants`: mutation scores of class strings; tables come as bytes.
#include "coverage/boundary_mutants.h"

#include <string>

#include "bind/bind.h"

namespace nb = nanobind;

namespace toktier::bind {

namespace {

std::vector<std::uint8_t> table(const nb::bytes& data, std::size_t size, std::uint32_t below, const char* name) {
  const auto* p = reinterpret_cast<const std::uint8_t*>(data.c_str());
  std::vector<std::uint8_t> out(p, p + data.size());
  bool good = out.size() == size;
  for (const std::uint8_t value : out) good &= value < below;
  if (!good) throw nb::value_error((std::string(name) + " does not fit its sizes").c_str());
  return out;
}

// Views of the list's items, which the caller keeps.
std::vector<std::string_view> strings_of(const nb::list& items, std::uint32_t n_class) {
  std::vector<std::string_view> out;
  for (const nb::handle item : items) {
    if (!PyBytes_Check(item.ptr())) throw nb::type_error("a class string is bytes");
    out.emplace_back(PyBytes_AS_STRING(item.ptr()), std::size_t(PyBytes_GET_SIZE(item.ptr())));
    for (const char c : out.back())
      if (static_cast<std::uint8_t>(c) >= n_class) throw nb::value_error("a class string has a class that is none");
  }
  return out;
}

nb::dict report(const coverage::MutationScore& score) {
  nb::list survivors;
  for (const coverage::Mutant& m : score.survivors) survivors.append(nb::make_tuple(m.table, m.place, m.value));
  nb::dict out;
  out["tested"] = score.tested;
  out["refused"] = score.refused;
  out["killed"] = score.killed;
  out["equivalent"] = score.equivalent;
  out["survivors"] = survivors;
  return out;
}

nb::dict boundary_mutants(std::uint32_t n_class, std::uint32_t n_left, std::uint32_t n_right, const nb::bytes& left,
                          const nb::bytes& right, const nb::bytes& matrix, std::uint32_t left_start, std::uint32_t right_end,
                          const nb::list& strings) {
  if (n_class > 256 || n_left > 256 || n_right > 256 || left_start >= n_left || right_end >= n_right)
    throw nb::value_error("the sizes are out of range");
  coverage::TwoPassTables t{n_class, n_left, n_right, left_start, right_end, {}, {}, {}};
  t.left = table(left, std::size_t{n_left} * n_class, n_left, "left");
  t.right = table(right, std::size_t{n_right} * n_class, n_right, "right");
  t.matrix = table(matrix, std::size_t{n_left} * n_right, 3, "matrix");
  const std::vector<std::string_view> texts = strings_of(strings, n_class);
  coverage::MutationScore score;
  {
    nb::gil_scoped_release released;
    score = coverage::mutate_two_pass(t, texts);
  }
  return report(score);
}

nb::dict token_mutants(std::uint32_t n_class, std::uint32_t n_state, std::uint32_t start, const nb::bytes& next,
                       const nb::bytes& actions, const nb::bytes& end, const nb::bytes& pending, const nb::list& strings) {
  if (n_class > 256 || n_state > 0x10000 || start >= n_state) throw nb::value_error("the sizes are out of range");
  const std::size_t entries = std::size_t{n_state} * n_class;
  coverage::OnePassTables t{n_class, n_state, start, {}, {}, {}, {}};
  const std::vector<std::uint8_t> halves = table(next, entries * 2, 256, "next");
  for (std::size_t i = 0; i < entries; ++i) {
    t.next.push_back(halves[2 * i] | std::uint32_t{halves[2 * i + 1]} << 8);
    if (t.next.back() >= n_state) throw nb::value_error("next does not fit its sizes");
  }
  t.actions = table(actions, entries, 256, "actions");
  t.end = table(end, n_state, 256, "end");
  t.pending = table(pending, n_state, 4, "pending");
  const std::vector<std::string_view> texts = strings_of(strings, n_class);
  coverage::MutationScore score;
  {
    nb::gil_scoped_release released;
    score = coverage::mutate_one_pass(t, texts);
  }
  return report(score);
}

}  // namespace

void register_boundary_mutants(nb::module_& m) {
  m.def("boundary_mutants", &boundary_mutants, nb::arg("n_class"), nb::arg("n_left"), nb::arg("n_right"), nb::arg("left"),
        nb::arg("right"), nb::arg("matrix"), nb::arg("left_start"), nb::arg("right_end"), nb::arg("strings"),
        "Which single-entry changes of two-pass tables the class strings notice.");
  m.def("token_mutants", &token_mutants, nb::arg("n_class"), nb::arg("n_state"), nb::arg("start"), nb::arg("next"),
        nb::arg("actions"), nb::arg("end"), nb::arg("pending"), nb::arg("strings"),
        "Which single-entry changes of one-pass tables the class strings notice.");
}

}  // namespace toktier::bind
