// `_native.build_bpe`: hands the compiler's vocabulary and merge rules to native/compile and its tables back as bytes.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "bind/bind.h"
#include "compile/boundary_rules.h"
#include "compile/bpe_tables.h"

namespace nb = nanobind;

namespace toktier::bind {

namespace {

using compile::Blob;

// A contiguous buffer, held while its content is copied.
class Buffer {
 public:
  explicit Buffer(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::vector<std::uint8_t> bytes() const {
    const auto* p = static_cast<const std::uint8_t*>(view_.buf);
    return {p, p + view_.len};
  }
  std::vector<std::uint32_t> words(const char* name) const {
    if (view_.len % 4 != 0) throw nb::value_error((std::string(name) + " is no buffer of 32-bit integers").c_str());
    std::vector<std::uint32_t> out(std::size_t(view_.len) / 4);
    if (!out.empty()) std::memcpy(out.data(), view_.buf, out.size() * 4);
    return out;
  }

 private:
  Py_buffer view_;
};

Blob blob(const nb::list& strings, const char* name) {
  Blob out;
  const std::size_t n = strings.size();
  std::uint64_t total = 0;
  out.offsets.reserve(n + 1);
  out.offsets.push_back(0);
  for (std::size_t i = 0; i < n; ++i) {
    PyObject* item = PyList_GET_ITEM(strings.ptr(), Py_ssize_t(i));
    if (!PyBytes_Check(item)) throw nb::type_error((std::string(name) + "[" + std::to_string(i) + "] is not bytes").c_str());
    total += std::uint64_t(PyBytes_GET_SIZE(item));
    if (total > std::numeric_limits<std::uint32_t>::max())
      throw nb::value_error((std::string(name) + " has more than 4 GiB").c_str());
    out.offsets.push_back(std::uint32_t(total));
  }
  out.bytes.reserve(total);
  for (std::size_t i = 0; i < n; ++i) {
    PyObject* item = PyList_GET_ITEM(strings.ptr(), Py_ssize_t(i));
    const auto* p = reinterpret_cast<const std::uint8_t*>(PyBytes_AS_STRING(item));
    out.bytes.insert(out.bytes.end(), p, p + PyBytes_GET_SIZE(item));
  }
  return out;
}

template <typename T>
nb::bytes as_bytes(const std::vector<T>& values) {
  return nb::bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

nb::tuple build_bpe(const nb::list& raw, const nb::list& strings, nb::handle flags, nb::handle merges, bool byte_level,
                    nb::handle initial, nb::handle byte_fallback, bool ignore_merges, std::optional<std::uint32_t> unk_id) {
  compile::BpeInput input;
  input.raw = blob(raw, "raw");
  input.strings = blob(strings, "strings");
  input.flags = Buffer(flags).bytes();
  input.merges = Buffer(merges).words("merges");
  input.initial = Buffer(initial).words("initial");
  input.byte_fallback = Buffer(byte_fallback).words("byte_fallback");
  input.byte_level = byte_level;
  input.ignore_merges = ignore_merges;
  if (unk_id) input.unk_id = *unk_id;
  compile::BpeTables tables;
  try {
    nb::gil_scoped_release released;
    tables = compile::build_bpe(input);
  } catch (const compile::CompileError& error) {
    throw nb::value_error(error.what.c_str());
  }
  nb::dict sections;
  sections["PAIR"] = as_bytes(tables.merges.slots);
  sections["MDIS"] = as_bytes(tables.merges.displacement);
  sections["MENT"] = as_bytes(tables.merges.entries);
  sections["MPRD"] = as_bytes(tables.merges.product);
  sections["PLIN"] = as_bytes(tables.plin);
  sections["PKEY"] = as_bytes(tables.pkey);
  sections["PHSH"] = as_bytes(tables.phsh);
  sections["VLIN"] = as_bytes(tables.vlin);
  sections["VHSH"] = as_bytes(tables.vhsh);
  sections["JCHR"] = as_bytes(tables.jchr);
  sections["JFRG"] = as_bytes(tables.jfrg);
  sections["TFLG"] = as_bytes(tables.tflg);
  sections["RAWO"] = as_bytes(input.raw.offsets);
  sections["RAWB"] = as_bytes(input.raw.bytes);
  sections["STRO"] = as_bytes(input.strings.offsets);
  sections["STRB"] = as_bytes(input.strings.bytes);
  const char* join = !tables.jbyt.empty() ? "JBYT" : !tables.jsym.empty() ? "JSYM" : nullptr;
  if (!tables.jbyt.empty()) sections["JBYT"] = as_bytes(tables.jbyt);
  if (!tables.jsym.empty()) sections["JSYM"] = as_bytes(tables.jsym);
  const compile::BpeStatistics& s = tables.statistics;
  nb::dict statistics;
  statistics["merges"] = s.merges;
  statistics["live"] = s.live;
  statistics["dead"] = s.dead;
  statistics["kept_unproved"] = s.kept_unproved;
  statistics["tokens"] = s.tokens;
  statistics["reachable"] = s.reachable;
  statistics["unreachable"] = s.unreachable;
  statistics["monotone"] = s.monotone;
  statistics["max_piece"] = s.max_piece;
  statistics["pair_seed"] = tables.merges.seed;
  statistics["join"] = join == nullptr ? nb::object(nb::none()) : nb::object(nb::str(join));
  return nb::make_tuple(sections, as_bytes(tables.live_merges), statistics);
}

nb::tuple find_rules(nb::handle left, nb::handle right, nb::handle matrix, std::uint32_t n_class, std::uint32_t left_start,
                     std::uint32_t right_end, nb::handle ascii_class) {
  const std::vector<std::uint8_t> l = Buffer(left).bytes(), r = Buffer(right).bytes(), m = Buffer(matrix).bytes(),
                                  ascii = Buffer(ascii_class).bytes();
  TtBoundary b{};
  b.n_class = n_class;
  b.n_left = n_class == 0 ? 0 : std::uint32_t(l.size() / n_class);
  b.n_right = n_class == 0 ? 0 : std::uint32_t(r.size() / n_class);
  b.left_start = left_start;
  b.right_end = right_end;
  const auto below = [](const std::vector<std::uint8_t>& values, std::uint32_t limit) {
    return std::all_of(values.begin(), values.end(), [limit](std::uint8_t v) { return v < limit; });
  };
  if (n_class == 0 || n_class > 255 || l.size() % n_class != 0 || r.size() % n_class != 0 || b.n_left > 256 || b.n_right > 256 ||
      left_start >= b.n_left || right_end >= b.n_right || m.size() != std::size_t{b.n_left} * b.n_right || ascii.size() != 128 ||
      !below(l, b.n_left) || !below(r, b.n_right) || !below(m, 3) || !below(ascii, n_class))
    throw nb::value_error("no boundary tables");
  b.left = l.data();
  b.right = r.data();
  b.matrix = m.data();
  const compile::BoundaryRules rules = compile::find_boundary_rules(b, ascii.data());
  return nb::make_tuple(as_bytes(rules.terms), rules.starts, rules.drops, rules.undecided);
}

}  // namespace

void register_compile(nb::module_& m) {
  m.def("find_boundary_rules", &find_rules, nb::arg("left"), nb::arg("right"), nb::arg("matrix"), nb::arg("n_class"),
        nb::arg("left_start"), nb::arg("right_end"), nb::arg("ascii_class"), "The local rules of boundary tables.");
  m.def("build_bpe", &build_bpe, nb::arg("raw"), nb::arg("strings"), nb::arg("flags"), nb::arg("merges"), nb::arg("byte_level"),
        nb::arg("initial"), nb::arg("byte_fallback"), nb::arg("ignore_merges"), nb::arg("unk_id").none(),
        "BPE sections of a program, the rules that can fire, and what was proved.");
}

}  // namespace toktier::bind
