// `_native.cover_vocabulary`: texts that show every token and rule of a program, and what is proved of the others.
#include <string>
#include <vector>

#include "bind/bind.h"
#include "bind/program.h"
#include "coverage/rank_order.h"
#include "coverage/vocabulary_search.h"

namespace nb = nanobind;

namespace toktier::bind {

namespace {

using coverage::Outcome;

nb::list list_of_texts(const std::vector<std::string>& texts) {
  nb::list out;
  for (const std::string& text : texts) {
    PyObject* object = PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), nullptr);
    if (object == nullptr) throw nb::python_error();
    out.append(nb::steal(object));
  }
  return out;
}

nb::bytes outcomes(const std::vector<Outcome>& values) {
  return nb::bytes(reinterpret_cast<const char*>(values.data()), values.size());
}

nb::dict cover_vocabulary(const ProgramOwner& owner, std::uint32_t mutants) {
  coverage::Coverage covered;
  coverage::RankOrder order;
  coverage::Mutants score;
  std::vector<std::string> documents;
  {
    nb::gil_scoped_release released;
    auto context = owner.contexts().acquire();
    coverage::Tracer tracer(owner.program(), *context);
    coverage::VocabularySearch search(owner.program(), tracer);
    covered = search.run();
    order = coverage::order_texts(owner.program(), tracer, search);
    std::vector<std::string> all = covered.texts;
    all.insert(all.end(), order.texts.begin(), order.texts.end());
    score = coverage::rank_mutants(owner.program(), tracer, search, all, 1, mutants);
    documents = coverage::join_texts(owner.program(), tracer, covered.texts);
  }
  nb::dict out;
  out["texts"] = list_of_texts(covered.texts);
  out["tokens"] = outcomes(covered.tokens);
  out["rules"] = outcomes(covered.rules);
  out["rank_texts"] = list_of_texts(order.texts);
  out["documents"] = list_of_texts(documents);
  out["rank_pairs"] = order.pairs;
  out["rank_pairs_told"] = order.told;
  out["rank_pairs_blocked"] = order.blocked;
  out["mutants"] = score.tested;
  out["mutants_killed"] = score.killed;
  out["mutants_apart"] = score.apart;
  return out;
}

nb::tuple trace_text(const ProgramOwner& owner, nb::bytes text) {
  const std::string_view utf8(static_cast<const char*>(text.data()), text.size());
  if (validate_utf8(utf8) != std::string_view::npos) throw nb::value_error("the text is not valid UTF-8");
  auto context = owner.contexts().acquire();
  coverage::Tracer tracer(owner.program(), *context);
  coverage::Trace trace;
  tracer.trace(utf8, {}, trace);
  nb::list symbols, fired;
  for (const std::uint32_t id : trace.symbols) symbols.append(id);
  for (const std::uint32_t rank : trace.fired) fired.append(rank);
  return nb::make_tuple(symbols, fired);
}

}  // namespace

void register_coverage(nb::module_& m) {
  m.def("cover_vocabulary", &cover_vocabulary, nb::arg("program"), nb::arg("mutants"),
        "Texts that show each token and each merge rule of a program, and the proofs of those that none can show.");
  m.def("trace_merges", &trace_text, nb::arg("program"), nb::arg("text"),
        "Ids of a text by plain merging of its pieces, and the ranks of the rules that fired, in order.");
}

}  // namespace toktier::bind
