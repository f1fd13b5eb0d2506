#include "bind/prefix_lookup.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "bind/encoder.h"
#include "bind/encoding.h"
#include "bind/engine_call.h"
#include "bind/errors.h"
#include "bind/ids.h"

namespace nb = nanobind;

namespace toktier::bind {

namespace {

// Boundaries of one text that have keys: the deepest ones. A text of nothing but special tokens costs no more memory than that.
constexpr std::size_t kMostBoundaries = 16384;

// What a key digests: the length of the namespace (64 bits, little-endian), the namespace, the flag, the prefix.
cache::Sha256 begin_key(const std::string& name_space, bool add_special_tokens) {
  cache::Sha256 digest;
  char length[8];
  for (int i = 0; i < 8; ++i) length[i] = char(std::uint64_t(name_space.size()) >> (8 * i) & 0xFF);
  digest.update({length, sizeof length});
  digest.update(name_space);
  digest.update({add_special_tokens ? "\1" : "\0", 1});
  return digest;
}

nb::object checked(PyObject* owned) {
  if (owned == nullptr) throw nb::python_error();
  return nb::steal(owned);
}

}  // namespace

PrefixIndex::PrefixIndex(nb::object store_object, std::vector<std::string> specials, std::string name,
                         std::vector<std::uint32_t> ids)
    : owner(store_object),
      store(nb::cast<cache::PrefixStore&>(store_object)),
      scan(std::move(specials)),
      name_space(std::move(name)),
      begun{begin_key(name_space, false), begin_key(name_space, true)},
      special_ids(std::move(ids)) {
  if (special_ids.empty()) return;
  if (special_ids.size() != scan.strings().size()) throw nb::value_error("there must be one id for each special");
  const auto [low, high] = std::minmax_element(special_ids.begin(), special_ids.end());
  lowest = *low;
  is_special.resize(std::size_t(*high) - lowest + 1);
  for (const std::uint32_t id : special_ids) is_special[id - lowest] = true;
}

PrefixLookup::PrefixLookup(nb::object index, nb::handle text, bool add_special_tokens)
    : owner_(index),
      index_(nb::cast<PrefixIndex&>(index)),
      add_special_tokens_(add_special_tokens),
      text_(take_text(text.ptr())) {
  if (!text_) throw nb::python_error();
  TextFault fault{};
  bool valid;
  // At every boundary the state, and where the bytes begin that fill no block yet. Ended to a key only where that is asked for: a
  // hit asks for few, from the deepest on.
  std::vector<std::pair<cache::Sha256, std::size_t>> digests;
  {
    WithoutGil released(text_weight(text_.get()) >= kReleaseGilFrom);
    valid = utf8_of(text_.get(), transcode_lanes(best_level()), buffer_, utf8_, fault);
    if (valid) {
      index_.scan.run(utf8_, marks_);
      std::size_t count = marks_.size();
      if (count != 0 && marks_.back().end == utf8_.size()) --count;
      skipped_ = count - std::min(count, kMostBoundaries);
      keys_.resize(count - skipped_);
      digests.reserve(keys_.size());
      cache::Sha256 digest = index_.begun[add_special_tokens];
      std::size_t at = 0;
      for (std::size_t i = 0; i < keys_.size(); ++i) {
        const std::size_t fed = digest.whole_blocks(end_of(i) - at);
        digest.update(utf8_.substr(at, fed));
        digests.emplace_back(digest, at += fed);
      }
    }
  }
  if (!valid) {
    set_invalid_text(fault);
    throw nb::python_error();
  }
  for (std::size_t i = keys_.size(); i > 0 && found_ == nullptr; --i) {
    const auto& [digest, from] = digests[i - 1];
    keys_[i - 1] = digest.digest(utf8_.substr(from, end_of(i - 1) - from));
    found_ = index_.store.ask(keys_[i - 1]);
    if (found_ == nullptr) continue;
    index_.store.use(found_);
    open_ = i;
    known_end_ = end_of(i - 1);
    known_ = std::size_t(found_->total);
  }
}

PrefixLookup::~PrefixLookup() {
  if (last_ != nullptr) index_.store.let_go(last_);
  if (found_ != nullptr) index_.store.let_go(found_);
}

nb::list PrefixLookup::open_keys() const {
  nb::list keys;
  for (std::size_t i = keys_.size(); i > open_; --i) keys.append(nb::bytes(keys_[i - 1].data(), keys_[i - 1].size()));
  return keys;
}

bool PrefixLookup::adopt(std::size_t index, nb::bytes ids) {
  const std::size_t count = ids.size() / sizeof(std::uint32_t);
  if (index >= keys_.size() - open_ || ids.size() % sizeof(std::uint32_t) != 0 || count < known_) return false;
  foreign_.resize(count);
  if (count != 0) std::memcpy(foreign_.data(), ids.data(), ids.size());
  const std::size_t boundary = keys_.size() - 1 - index;
  store_at(boundary, foreign_.data() + known_, count - known_);
  stored_.clear();  // whoever brought it has it
  if (last_ != nullptr) {
    std::vector<std::uint32_t>().swap(foreign_);
    if (found_ != nullptr) index_.store.let_go(found_);
    found_ = std::exchange(last_, nullptr);
  }
  open_ = boundary + 1;
  known_end_ = end_of(boundary);
  known_ = count;
  ++index_.second_level_hits;
  return true;
}

bool PrefixLookup::settle() {
  ++(open_ != 0 ? index_.hits : index_.misses);
  return open_ != 0;
}

nb::list PrefixLookup::parts(bool extend) {
  const std::size_t n = keys_.size();
  const std::size_t first = open_ == 0 ? 0 : extend && n > open_ ? n - 1 : n;
  nb::list parts;
  std::size_t at = known_end_;
  const auto add = [&](std::size_t end) {
    if (at == 0 && end == utf8_.size() && PyUnicode_Check(text_.get()))
      parts.append(nb::borrow(text_.get()));
    else
      parts.append(checked(PyUnicode_DecodeUTF8(utf8_.data() + at, Py_ssize_t(end - at), nullptr)));
    at = end;
  };
  for (std::size_t i = first; i < n; ++i) {
    part_boundary_.push_back(i);
    add(end_of(i));
  }
  add(utf8_.size());
  return parts;
}

void PrefixLookup::take(nb::handle ids) {
  std::vector<std::uint32_t> taken;
  if (!take_ids(ids.ptr(), taken)) throw nb::python_error();
  rest_.insert(rest_.end(), taken.begin(), taken.end());
  after_part_.push_back(rest_.size());
}

void PrefixLookup::keep(std::size_t part) {
  if (part >= after_part_.size() || part >= part_boundary_.size()) throw nb::index_error("there is no such part");
  store_at(part_boundary_[part], rest_.data(), after_part_[part]);
}

// The first `count` of `rest`, the ids behind known_, end at the boundary. After one that was refused none is offered any more: a
// longer prefix was asked for no more often and has more ids of its own, which would be copied again and again for nothing.
void PrefixLookup::store_at(std::size_t boundary, const std::uint32_t* rest, std::size_t count) {
  if (refused_) return;
  cache::PrefixStore::Entry* const parent = deepest();
  const std::size_t held = parent == nullptr ? 0 : std::size_t(parent->total);
  if (held < known_ || held > known_ + count) return;  // what is known did not go into the store: nor would more
  const std::size_t before = held - known_;
  auto* const entry = index_.store.add(keys_[boundary], parent, rest + before, count - before, index_.name_space);
  if (entry == nullptr) {
    refused_ = true;
    return;
  }
  if (entry->total != known_ + count) {  // it was there, of an engine or a second level that says otherwise of this prefix
    index_.store.let_go(entry);
    return;
  }
  if (last_ != nullptr) index_.store.let_go(last_);
  last_ = entry;
  stored_.emplace_back(boundary, known_ + count);
}

void PrefixLookup::copy_known(std::uint32_t* out) const {
  if (!foreign_.empty())
    std::memcpy(out, foreign_.data(), known_ * sizeof *out);
  else if (known_ != 0)
    cache::PrefixStore::copy(found_, out);
}

nb::object PrefixLookup::encoding(const std::string& backend) {
  std::uint32_t* ids;
  nb::object made = checked(new_encoding(known_ + rest_.size(), nullptr, nullptr, {}, ids));
  copy_known(ids);
  if (!rest_.empty()) std::memcpy(ids + known_, rest_.data(), rest_.size() * sizeof *ids);
  PyObject* const name = PyUnicode_InternFromString(backend.c_str());
  if (name == nullptr) throw nb::python_error();
  Py_SETREF(as_encoding(made.ptr())->backend, name);
  total_ = known_ + rest_.size();
  index_.cached_tokens += known_;
  index_.uncached_tokens += rest_.size();
  made_ = made;
  return made;
}

// Where the ids of the specials behind the known prefix stand: after[k] is the number of ids up to the k-th of them. False unless
// they are there one by one, in order, and no other.
bool PrefixLookup::place(const std::uint32_t* ids, std::size_t count, std::vector<std::size_t>& after) const {
  const std::size_t first = open_ == 0 ? 0 : skipped_ + open_;
  after.clear();
  after.reserve(marks_.size() - first);
  const std::uint32_t span = std::uint32_t(index_.is_special.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t above = ids[i] - index_.lowest;
    if (above >= span || !index_.is_special[above]) continue;
    const std::size_t k = first + after.size();
    if (k >= marks_.size() || index_.special_ids[marks_[k].which] != ids[i]) return false;
    after.push_back(i + 1);
  }
  return first + after.size() == marks_.size();
}

nb::object PrefixLookup::encode_by(nb::handle encoder, bool extend) {
  if (index_.special_ids.empty()) throw nb::value_error("the index has no ids of specials");
  nb::object made = open_ != 0 ? encode_rest(encoder, extend) : encode_whole(encoder);
  // The premise failed that a prefix ends with its special token.
  if (!made.is_valid()) return instead(nb::borrow(encoder).attr("_encode_here")(nb::handle(text_.get()), add_special_tokens_));
  total_ = std::size_t(as_encoding(made.ptr())->count);
  index_.cached_tokens += known_;
  index_.uncached_tokens += total_ - known_;
  made_ = made;
  return made;
}

nb::object PrefixLookup::instead(nb::object whole) {
  if (!is_encoding(whole.ptr())) throw nb::type_error("expected an Encoding");
  ++index_.unplaced;
  stored_.clear();  // its ids are not those of the whole
  foreign_.clear();
  known_ = 0;
  total_ = std::size_t(as_encoding(whole.ptr())->count);
  index_.uncached_tokens += total_;
  made_ = whole;
  return whole;
}

nb::object PrefixLookup::encode_whole(nb::handle encoder) {
  nb::object made = nb::borrow(encoder).attr("_encode_here")(nb::handle(text_.get()), add_special_tokens_);
  if (!is_encoding(made.ptr())) throw nb::type_error("expected an EncoderBase");
  PyObject* const program = program_of_encoder(encoder.ptr());
  if (program == nullptr) throw nb::python_error();
  const EncodingObject* e = as_encoding(made.ptr());
  const IdsAround around = add_special_tokens_ ? ids_around(program_of(program)->program()) : IdsAround{};
  if (keys_.empty() || std::size_t(e->count) < around.n_before + around.n_after) return made;
  std::vector<std::size_t> after;
  const std::uint32_t* const inner = e->ids + around.n_before;
  if (!place(inner, std::size_t(e->count) - around.n_before - around.n_after, after)) {
    ++index_.unplaced;
    return made;
  }
  for (std::size_t i = 0; i < keys_.size(); ++i) store_at(i, inner, after[skipped_ + i]);
  return made;
}

// Invalid where the ids do not show the special tokens where the text has them.
nb::object PrefixLookup::encode_rest(nb::handle encoder, bool extend) {
  PyObject* const program = program_of_encoder(encoder.ptr());
  if (program == nullptr) throw nb::python_error();
  const ProgramOwner& owner = *program_of(program);
  CallerLease caller(owner);
  EncodeOptions options;
  options.post_process = false;
  const std::string_view rest = utf8_.substr(known_end_);
  std::size_t count = 0;
  try {
    WithoutGil released(rest.size() >= std::size_t(kReleaseGilFrom));
    count = caller->context->prepare(rest, options);
  } catch (...) {
    set_from_current_exception();
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  count_call(encoder.ptr(), rest.size());
  const IdsAround around = add_special_tokens_ ? ids_around(owner.program()) : IdsAround{};
  std::uint32_t* ids;
  nb::object made =
      checked(new_encoding_within(around, known_ + count, program, text_.get(), {add_special_tokens_, false}, ids));
  copy_known(ids);
  caller->context->write(ids + known_);
  std::vector<std::size_t> after;
  if (!place(ids + known_, count, after)) return nb::object();
  if (extend && keys_.size() > open_) {
    const std::size_t last = keys_.size() - 1;
    store_at(last, ids + known_, after[last - open_]);
  }
  return made;
}

nb::list PrefixLookup::stored(std::size_t most) const {
  nb::list out;
  if (stored_.empty() || !made_.is_valid()) return out;
  const std::uint32_t* ids = as_encoding(made_.ptr())->ids;
  std::vector<std::uint32_t> own;
  // The ids stand behind what the template put before a text: read them from the store's own entry instead.
  if (add_special_tokens_) {
    if (last_ == nullptr) return out;
    own.resize(std::size_t(last_->total));
    cache::PrefixStore::copy(last_, own.data());
    ids = own.data();
  }
  for (std::size_t i = 0; i < stored_.size(); ++i) {
    if (i >= most && i + most < stored_.size()) continue;
    const auto [boundary, count] = stored_[i];
    out.append(nb::make_tuple(nb::bytes(keys_[boundary].data(), keys_[boundary].size()),
                              nb::bytes(ids, count * sizeof *ids)));
  }
  return out;
}

}  // namespace toktier::bind
