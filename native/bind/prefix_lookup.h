// One text asked of a prefix cache: where its boundaries are, the longest prefix that is known, and what becomes of the rest.
// Every member is called with the GIL held, which is the lock of the store; the text is scanned and digested without it.
#pragma once
#include <string>
#include <vector>

#include "bind/bind.h"
#include "bind/text.h"
#include "cache/prefix_store.h"
#include "cache/special_scan.h"

namespace toktier::bind {

// What one wrapper of a backend brings: its boundary strings, the namespace of its keys, its counts.
struct PrefixIndex {
  PrefixIndex(nanobind::object store, std::vector<std::string> specials, std::string name_space,
              std::vector<std::uint32_t> special_ids);

  const nanobind::object owner;  // of `store`
  cache::PrefixStore& store;
  const cache::SpecialScan scan;
  const std::string name_space;
  const cache::Sha256 begun[2];  // after what stands before a text in a key, without and with add_special_tokens
  // Of the specials, where one engine gives each one id; else empty. `is_special`: by id - lowest.
  const std::vector<std::uint32_t> special_ids;
  std::uint32_t lowest = 0;
  std::vector<bool> is_special;
  std::uint64_t hits = 0, misses = 0, cached_tokens = 0, uncached_tokens = 0, unplaced = 0, bypassed = 0;
  std::uint64_t second_level_hits = 0, second_level_errors = 0;
};

class PrefixLookup {
 public:
  // Scans, digests and asks the store. Throws python_error for a text that is none.
  PrefixLookup(nanobind::object index, nanobind::handle text, bool add_special_tokens);
  ~PrefixLookup();
  PrefixLookup(const PrefixLookup&) = delete;
  PrefixLookup& operator=(const PrefixLookup&) = delete;

  std::size_t boundaries() const { return keys_.size(); }
  std::size_t bytes_known() const { return known_end_; }
  std::size_t tokens_known() const { return known_; }
  std::size_t tokens_new() const { return total_ - known_; }  // once there is an Encoding

  // Keys of the boundaries behind the known prefix, the longest first.
  nanobind::list open_keys() const;
  // Another level knows the ids (uint32, little-endian) of the prefix of open_keys()[index]: false where they cannot be.
  bool adopt(std::size_t index, nanobind::bytes ids);
  // Counts a hit or a miss: whether it is a hit.
  bool settle();

  // The rest, cut where entries will be made: at every boundary after a miss, at the last one after a hit, if `extend`.
  nanobind::list parts(bool extend);
  void take(nanobind::handle ids);  // of the next part
  void keep(std::size_t part);      // stores the prefix that this part of parts() ends
  nanobind::object encoding(const std::string& backend);
  // An Encoding of the whole text is the answer, and nothing that is known of it: what was found does not fit what came.
  nanobind::object instead(nanobind::object whole);

  // The rest by an EncoderBase with a program, at one go, and entries where parts() would have cut.
  nanobind::object encode_by(nanobind::handle encoder, bool extend);

  // (key, ids) of what was stored, the whole prefixes as uint32; of many the `most` shortest and longest.
  nanobind::list stored(std::size_t most) const;

 private:
  std::size_t end_of(std::size_t boundary) const { return marks_[skipped_ + boundary].end; }
  bool place(const std::uint32_t* ids, std::size_t count, std::vector<std::size_t>& after) const;
  cache::PrefixStore::Entry* deepest() const { return last_ != nullptr ? last_ : found_; }
  void store_at(std::size_t boundary, const std::uint32_t* rest, std::size_t count);
  void copy_known(std::uint32_t* out) const;
  nanobind::object encode_whole(nanobind::handle encoder);
  nanobind::object encode_rest(nanobind::handle encoder, bool extend);

  nanobind::object owner_;  // of index_
  PrefixIndex& index_;
  bool add_special_tokens_;
  Ref text_;  // exact str or bytes
  TextBuffer buffer_;
  std::string_view utf8_;
  std::vector<cache::Occurrence> marks_;  // all specials, the one that ends the text included, which is no boundary
  std::size_t skipped_ = 0;               // marks before the first boundary that has a key
  std::vector<cache::Digest> keys_;       // of the boundaries from the found one on; those before it are not needed
  std::size_t open_ = 0;        // boundaries from here on are not known
  std::size_t known_end_ = 0;   // bytes
  std::size_t known_ = 0;       // ids before known_end_
  cache::PrefixStore::Entry* found_ = nullptr;  // of the known prefix; held
  cache::PrefixStore::Entry* last_ = nullptr;   // the last that was stored; held
  std::vector<std::uint32_t> foreign_;          // the known ids, where the store would not take them
  std::vector<std::uint32_t> rest_;            // of the parts that were taken
  std::vector<std::size_t> after_part_;        // how many ids of the rest each part ends
  std::vector<std::size_t> part_boundary_;     // the boundary that each part but the last ends at
  std::vector<std::pair<std::size_t, std::size_t>> stored_;  // boundary, ids
  bool refused_ = false;        // the store would not take a prefix
  std::size_t total_ = 0;
  nanobind::object made_;  // the Encoding
};

}  // namespace toktier::bind
