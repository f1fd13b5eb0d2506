// A chunk: the documents of one run of the kernels, packed one behind the other into memory that the device reads. A document is
// a text, or a part of one between cuts (engine/cuts.h). Packer makes chunks of the texts of a call, in order.
// Not here: what becomes of a chunk (lane.h, splice.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "cpu_share.h"
#include "device/abi.h"

namespace toktier::gpu {

// The texts of a call.
class TextSource {
 public:
  virtual ~TextSource() = default;
  virtual std::size_t count() const = 0;
  virtual std::size_t weight() const = 0;                // about the bytes of all
  virtual std::string_view text(std::size_t item) = 0;   // UTF-8, until the next call. May throw: that item fails
};

struct Chunk {
  // In order; several parts of a text follow each other.
  struct Entry {
    std::size_t item;
    std::uint32_t document;  // TT_NONE: not for the device, empty or in `uncut`
    bool first, last;        // part of its text
    bool uncut;
  };
  std::uint8_t* text = nullptr;       // where to pack to
  std::size_t size = 0;               // bytes packed
  std::vector<std::uint32_t> begin;   // of each document
  std::vector<Entry> entries;
  std::vector<std::vector<std::uint32_t>> uncut;  // ids of entries that the CPU engine has encoded already, in order

  std::size_t documents() const { return begin.size(); }
  std::string_view document(std::size_t d) const {
    const std::size_t end = d + 1 < begin.size() ? begin[d + 1] : size;
    return {reinterpret_cast<const char*>(text) + begin[d], end - begin[d]};
  }
  void clear();
};

class Packer {
 public:
  // A chunk holds at most `most_bytes` of text and `most_documents` entries.
  Packer(const Program& program, ContextPool& contexts, TextSource& texts, bool plain, std::size_t most_bytes,
         std::size_t most_documents);

  bool done() const { return failed_ || item_ == texts_.count(); }
  void fill(Chunk& chunk);
  std::size_t bytes() const { return bytes_; }  // of texts so far
  // Throws the ItemError that ended the packing, if one did: for when everything before it is done.
  void rethrow() const;

 private:
  void add(Chunk& chunk, std::size_t size);  // the next part of the open text
  void add_uncut(Chunk& chunk);              // all that is left of it
  bool fits(const Chunk& chunk, std::size_t& size) const;
  std::size_t cut_before(std::size_t limit) const;

  const Program& program_;
  ContextPool& contexts_;
  TextSource& texts_;
  const bool plain_;
  const std::size_t most_bytes_, most_documents_;
  std::size_t item_ = 0, at_ = 0, bytes_ = 0;
  bool open_ = false;      // `text_` is that of `item_`
  std::string_view text_;
  std::optional<ItemError> failed_;
};

}  // namespace toktier::gpu
