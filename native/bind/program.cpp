// The Python face of an open program: splitting, decoding and look-ups. Encoding is EncoderBase's.
#include "bind/program.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>

#include "bind/engine_call.h"
#include "bind/errors.h"
#include "bind/ids.h"
#include "bind/text.h"
#include "engine/cuts.h"
#include "engine/joins.h"

namespace nb = nanobind;

namespace toktier::bind {

namespace {

PyObject* program_error_type = nullptr;
nb::handle program_type;  // owned, never released

void set_program_error(const ProgramError& error) {
  const std::string message = error.where + ": " + error.what;
  const Ref arguments(Py_BuildValue("(s#)", message.data(), Py_ssize_t(message.size())));
  const Ref where(PyUnicode_DecodeUTF8(error.where.data(), Py_ssize_t(error.where.size()), "replace"));
  const Ref what(PyUnicode_DecodeUTF8(error.what.data(), Py_ssize_t(error.what.size()), "replace"));
  if (!arguments || !where || !what) return;
  const Ref value(PyObject_Call(program_error_type, arguments.get(), nullptr));
  if (!value || PyObject_SetAttrString(value.get(), "where", where.get()) != 0 ||
      PyObject_SetAttrString(value.get(), "what", what.get()) != 0)
    return;
  PyErr_SetObject(program_error_type, value.get());
}

nb::object str(std::string_view utf8) {
  PyObject* object = PyUnicode_DecodeUTF8(utf8.data(), Py_ssize_t(utf8.size()), nullptr);
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

std::uint32_t checked_id(nb::handle id) {
  std::uint32_t out;
  if (!take_id(id.ptr(), 0, out)) throw nb::python_error();
  return out;
}

nb::tuple split_text(const ProgramOwner& owner, nb::handle text, bool two_pass, bool windows) {
  const Ref taken = take_text(text.ptr());
  if (!taken) throw nb::python_error();
  TextBuffer buffer;
  std::string_view utf8;
  TextFault fault{};
  std::vector<std::uint32_t> boundaries;
  std::vector<std::uint8_t> dropped;
  bool valid;
  {
    WithoutGil released(text_weight(taken.get()) >= kReleaseGilFrom);
    valid = utf8_of(taken.get(), owner.transcode(), buffer, utf8, fault);
    const SplitForm form = windows ? SplitForm::windows : two_pass ? SplitForm::two_pass : SplitForm::token_automaton;
    if (valid) split(owner.program(), utf8, form, owner.level(), boundaries, dropped);
  }
  if (!valid) {
    set_invalid_text(fault);
    throw nb::python_error();
  }
  nb::list flags;
  for (const std::uint8_t d : dropped) flags.append(nb::bool_(d != 0));
  return nb::make_tuple(nb::steal(list_of_ids(boundaries.data(), Py_ssize_t(boundaries.size()))), flags);
}

nb::tuple cuts_of(const ProgramOwner& owner, nb::handle text, bool continued) {
  const Ref taken = take_text(text.ptr());
  if (!taken) throw nb::python_error();
  TextBuffer buffer;
  std::string_view utf8;
  TextFault fault{};
  std::vector<std::uint32_t> positions;
  std::string kinds;
  bool valid;
  {
    WithoutGil released(text_weight(taken.get()) >= kReleaseGilFrom);
    valid = utf8_of(taken.get(), owner.transcode(), buffer, utf8, fault);
    if (valid) list_cuts(owner.program(), utf8, continued, positions, kinds);
  }
  if (!valid) {
    set_invalid_text(fault);
    throw nb::python_error();
  }
  return nb::make_tuple(nb::steal(list_of_ids(positions.data(), Py_ssize_t(positions.size()))),
                        nb::bytes(kinds.data(), kinds.size()));
}

nb::bytes joins_of(const ProgramOwner& owner, nb::handle text) {
  const Ref taken = take_text(text.ptr());
  if (!taken) throw nb::python_error();
  TextBuffer buffer;
  std::string_view utf8;
  TextFault fault{};
  if (!utf8_of(taken.get(), owner.transcode(), buffer, utf8, fault)) {
    set_invalid_text(fault);
    throw nb::python_error();
  }
  const std::string joins = list_joins(owner.program(), utf8);
  return nb::bytes(joins.data(), joins.size());
}

nb::object decode_ids(const ProgramOwner& owner, nb::handle ids, bool skip_special_tokens) {
  std::vector<std::uint32_t> taken;
  if (!take_ids(ids.ptr(), taken)) throw nb::python_error();
  std::string text;
  {
    WithoutGil released(taken.size() >= kReleaseGilFrom / 4);
    text = decode(owner.program(), taken.data(), taken.size(), skip_special_tokens);
  }
  return str(text);
}

nb::object id_of(const ProgramOwner& owner, const nb::str& token) {
  TextBuffer buffer;
  std::string_view utf8;
  TextFault fault{};
  const Ref text = take_text(token.ptr());
  if (!text) throw nb::python_error();
  if (!utf8_of(text.get(), owner.transcode(), buffer, utf8, fault)) return nb::none();  // a lone surrogate: no token has one
  const std::optional<std::uint32_t> id = token_id(owner.program(), utf8);
  return id ? nb::object(nb::int_(*id)) : nb::object(nb::none());
}

nb::object token_of(const ProgramOwner& owner, nb::handle id) {
  const std::optional<std::string_view> token = token_string(owner.program(), checked_id(id));
  return token ? str(*token) : nb::object(nb::none());
}

nb::dict info(const ProgramOwner& owner) {
  const ProgramFacts& f = owner.facts();
  nb::dict out;
  out["n_ids"] = f.n_ids;
  out["n_class"] = f.n_class;
  out["n_left"] = f.n_left;
  out["n_right"] = f.n_right;
  out["n_token"] = f.n_token;
  out["n_added"] = f.n_added;
  out["n_pair_slots"] = f.n_pair_slots;
  out["pad_mode"] = f.pad_mode;
  out["pad_fixed"] = f.pad_fixed;
  out["pad_multiple"] = f.pad_multiple;
  out["pad_id"] = f.pad_id;
  out["pad_left"] = f.pad_left != 0;
  out["has_normalizer"] = f.has_normalizer;
  out["has_pre_tokenizer"] = f.has_pre_tokenizer;
  return out;
}

}  // namespace

ProgramOwner::ProgramOwner(nb::handle buffer, std::optional<std::string> level, std::optional<std::uint32_t> cache_lines) {
  if (cache_lines && (*cache_lines < 2 || *cache_lines > 1u << 17 || (*cache_lines & (*cache_lines - 1)) != 0))
    throw nb::value_error("cache_lines must be a power of two from 2 to 131072");
  if (level) {
    const std::optional<Level> found = level_of(*level);
    if (!found) throw nb::value_error("this CPU, or this build, does not have that dispatch level");
    level_ = *found;
  }
  if (PyObject_GetBuffer(buffer.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  try {
    program_ = open_program(static_cast<const std::uint8_t*>(view_.buf), std::size_t(view_.len));
    contexts_ = std::make_unique<ContextPool>(program_, level_, cache_lines.value_or(0));
    idle_callers_ = std::make_unique<IdleCallers>();
    transcode_ = &transcode_lanes(level_);
    facts_ = program_facts(*program_);
  } catch (...) {
    PyBuffer_Release(&view_);
    throw;
  }
}

ProgramOwner::~ProgramOwner() {
  idle_callers_.reset();
  contexts_.reset();
  program_.reset();
  PyBuffer_Release(&view_);
}

ProgramOwner* program_of(PyObject* object) {
  if (PyObject_IsInstance(object, program_type.ptr()) != 1 || !nb::inst_ready(object)) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "expected a Program or None, not %.100s", Py_TYPE(object)->tp_name);
    return nullptr;
  }
  return nb::inst_ptr<ProgramOwner>(object);
}

void register_program(nb::module_& m) {
  if (program_type.is_valid()) {  // the module is executed again: instances of these types may be alive
    m.attr("ProgramError") = nb::borrow(program_error_type);
    m.attr("Program") = program_type;
    return;
  }
  program_error_type = PyErr_NewExceptionWithDoc("toktier._native.ProgramError", "A program file that cannot be executed.",
                                                 PyExc_ValueError, nullptr);
  if (program_error_type == nullptr) throw nb::python_error();
  m.attr("ProgramError") = nb::borrow(program_error_type);
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const ProgramError& error) {
      set_program_error(error);
    } catch (const TextError&) {
      set_from_current_exception();
    } catch (const SettingsError&) {
      set_from_current_exception();
    }
  });
  const nb::object type =
      nb::class_<ProgramOwner>(m, "Program", nb::is_final())
          .def(nb::init<nb::handle, std::optional<std::string>, std::optional<std::uint32_t>>(), nb::arg("buffer").none(),
               nb::arg("level") = nb::none(), nb::arg("cache_lines") = nb::none())
          .def("split", &split_text, nb::arg("text").none(), nb::arg("two_pass") = false, nb::arg("windows") = false)
          .def("joins", &joins_of, nb::arg("text").none())
          .def("cuts", &cuts_of, nb::arg("text").none(), nb::arg("continued") = false)
          .def("decode", &decode_ids, nb::arg("ids").none(), nb::arg("skip_special_tokens") = true)
          .def("id_to_token", &token_of, nb::arg("id").none())
          .def("token_to_id", &id_of, nb::arg("token"))
          .def(
              "is_special", [](const ProgramOwner& o, nb::handle id) { return is_special(o.program(), checked_id(id)); },
              nb::arg("id").none())
          .def("info", &info)
          .def_prop_ro("level", [](const ProgramOwner& o) { return level_name(o.level()); })
          .def_prop_ro("n_ids", [](const ProgramOwner& o) { return o.facts().n_ids; });
  program_type = type.inc_ref();
}

}  // namespace toktier::bind
