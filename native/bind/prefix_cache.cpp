// `_native.PrefixStore`, `PrefixIndex` and `PrefixLookup`: the parts of toktier.cache.PrefixCache that must cost less than
// encoding; and what it asks of a program: its added tokens.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/prefix_lookup.h"
#include "bind/program.h"
#include "engine/program.h"

namespace nb = nanobind;

namespace toktier::bind {

namespace {

nb::dict as_dict(const cache::PrefixStore::Sizes& sizes) {
  nb::dict out;
  out["entries"] = sizes.entries;
  out["bytes"] = sizes.bytes;
  out["resident_bytes"] = sizes.resident;
  return out;
}

nb::dict stats(const cache::PrefixStore& store) {
  nb::dict out = as_dict(store.sizes());
  out["capacity"] = store.capacity();
  out["evicted"] = store.counts().evicted;
  out["refused"] = store.counts().refused;
  return out;
}

std::string utf8(nb::bytes bytes) { return {bytes.c_str(), bytes.size()}; }

std::vector<std::string> strings(nb::list list) {
  std::vector<std::string> out;
  for (nb::handle item : list) out.push_back(utf8(nb::cast<nb::bytes>(item)));
  for (const std::string& string : out)
    if (string.empty()) throw nb::value_error("a special is empty");
  return out;
}

nb::bytes bytes_of(const cache::Digest& digest) { return nb::bytes(digest.data(), digest.size()); }

nb::list boundaries(const PrefixIndex& index, nb::bytes text, bool add_special_tokens) {
  const std::string_view whole(text.c_str(), text.size());
  std::vector<cache::Occurrence> marks;
  index.scan.run(whole, marks);
  cache::Sha256 digest = index.begun[add_special_tokens];
  nb::list out;
  std::size_t at = 0;
  for (const cache::Occurrence& mark : marks) {
    digest.update(whole.substr(at, mark.end - at));
    at = mark.end;
    out.append(nb::make_tuple(mark.end, mark.which, bytes_of(digest.digest())));
  }
  return out;
}

nb::list added_tokens(nb::handle object) {
  const ProgramOwner* owner = program_of(object.ptr());
  if (owner == nullptr) throw nb::python_error();
  nb::list out;
  for (const AddedToken& token : owner->program().added) {
    const std::string_view content = token_string(owner->program(), token.id).value_or("");
    out.append(nb::make_tuple(token.id, nb::str(content.data(), content.size()), token.flags));
  }
  return out;
}

nb::bytes sha256(nb::bytes data, bool instructions) {
  cache::Sha256 digest(instructions);
  digest.update({data.c_str(), data.size()});
  return bytes_of(digest.digest());
}

}  // namespace

void register_prefix_cache(nb::module_& m) {
  using cache::PrefixStore;
  nb::class_<PrefixStore>(m, "PrefixStore")
      .def(nb::init<std::uint64_t, bool>(), nb::arg("capacity"), nb::arg("of_resident"))
      .def("stats", &stats)
      .def("sizes", [](const PrefixStore& s, nb::bytes name) { return as_dict(s.sizes(utf8(name))); }, nb::arg("name_space"))
      .def("clear", &PrefixStore::clear);
  nb::class_<PrefixIndex>(m, "PrefixIndex")
      .def("__init__",
           [](PrefixIndex* self, nb::object store, nb::list specials, nb::bytes name, std::vector<std::uint32_t> ids) {
             new (self) PrefixIndex(std::move(store), strings(specials), utf8(name), std::move(ids));
           },
           nb::arg("store"), nb::arg("specials"), nb::arg("name_space"), nb::arg("special_ids") = std::vector<std::uint32_t>())
      .def("find",
           [](nb::object self, nb::handle text, bool flag) { return new PrefixLookup(std::move(self), text, flag); },
           nb::arg("text").none(), nb::arg("add_special_tokens") = false)
      .def("boundaries", &boundaries, nb::arg("text"), nb::arg("add_special_tokens") = false)
      .def("bypass", [](PrefixIndex& index) { ++index.bypassed; })
      .def("second_level_failed", [](PrefixIndex& index) { ++index.second_level_errors; })
      .def_ro("hits", &PrefixIndex::hits)
      .def_ro("misses", &PrefixIndex::misses)
      .def_ro("cached_tokens", &PrefixIndex::cached_tokens)
      .def_ro("uncached_tokens", &PrefixIndex::uncached_tokens)
      .def_ro("unplaced", &PrefixIndex::unplaced)
      .def_ro("bypassed", &PrefixIndex::bypassed)
      .def_ro("second_level_hits", &PrefixIndex::second_level_hits)
      .def_ro("second_level_errors", &PrefixIndex::second_level_errors);
  nb::class_<PrefixLookup>(m, "PrefixLookup")
      .def_prop_ro("boundaries", &PrefixLookup::boundaries)
      .def_prop_ro("bytes_known", &PrefixLookup::bytes_known)
      .def_prop_ro("tokens_known", &PrefixLookup::tokens_known)
      .def_prop_ro("tokens_new", &PrefixLookup::tokens_new)
      .def("open_keys", &PrefixLookup::open_keys)
      .def("adopt", &PrefixLookup::adopt, nb::arg("index"), nb::arg("ids"))
      .def("settle", &PrefixLookup::settle)
      .def("parts", &PrefixLookup::parts, nb::arg("extend"))
      .def("take", &PrefixLookup::take, nb::arg("ids"))
      .def("keep", &PrefixLookup::keep, nb::arg("part"))
      .def("encoding", &PrefixLookup::encoding, nb::arg("backend"))
      .def("instead", &PrefixLookup::instead, nb::arg("whole"))
      .def("encode_by", &PrefixLookup::encode_by, nb::arg("encoder"), nb::arg("extend"))
      .def("stored", &PrefixLookup::stored, nb::arg("most"));
  m.def("added_tokens", &added_tokens, nb::arg("program"));
  m.def("sha256", &sha256, nb::arg("data"), nb::arg("instructions") = true);
  m.def("has_sha_instructions", &cache::has_sha_instructions);
}

}  // namespace toktier::bind
