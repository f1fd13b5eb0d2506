// Packs texts, and cuts those that are longer than a chunk.
#include "chunk.h"

#include <algorithm>
#include <cstring>

#include "engine/cuts.h"

namespace toktier::gpu {

namespace {

// Where so many positions in a row are no cut, the text is taken for one that has none: a look costs as much as encoding some
// hundred bytes.
constexpr std::size_t kMostLooks = 4096;

}  // namespace

void Chunk::clear() {
  size = 0;
  begin.clear();
  entries.clear();
  uncut.clear();
}

Packer::Packer(const Program& program, ContextPool& contexts, TextSource& texts, bool plain, std::size_t most_bytes,
               std::size_t most_documents)
    : program_(program),
      contexts_(contexts),
      texts_(texts),
      plain_(plain),
      most_bytes_(most_bytes),
      most_documents_(most_documents) {}

void Packer::fill(Chunk& chunk) {
  chunk.clear();
  while (!done() && chunk.entries.size() < most_documents_) {
    try {
      if (!open_) {
        text_ = texts_.text(item_);
        bytes_ += text_.size();
        at_ = 0;
        open_ = true;
      }
      std::size_t size = 0;
      if (fits(chunk, size))
        add(chunk, size);
      else if (chunk.size != 0)
        return;
      else
        add_uncut(chunk);
    } catch (const ItemError& error) {
      failed_ = error;
    } catch (...) {
      failed_ = ItemError{item_, std::current_exception()};
    }
  }
}

// A text that fits no chunk is cut where half a chunk is free, and at the end of one otherwise.
bool Packer::fits(const Chunk& chunk, std::size_t& size) const {
  const std::size_t left = text_.size() - at_, room = most_bytes_ - chunk.size;
  if (left <= room) return size = left, true;
  if (left <= most_bytes_ || room < most_bytes_ / 2) return false;
  const std::size_t cut = cut_before(at_ + room);
  size = cut - at_;
  return cut != at_;
}

// The last cut at `limit` or before it; at_ where none is near.
std::size_t Packer::cut_before(std::size_t limit) const {
  const std::size_t lowest = limit - std::min(kMostLooks, limit - at_);
  for (std::size_t p = limit; p > lowest; --p)
    if (cut_kind(program_, text_, p, true) != TT_CUT_NONE) return p;
  return at_;
}

void Packer::add(Chunk& chunk, std::size_t size) {
  const bool empty = size == 0;  // the kernels see no empty document
  const auto document = empty ? TT_NONE : static_cast<std::uint32_t>(chunk.documents());
  chunk.entries.push_back({item_, document, at_ == 0, at_ + size == text_.size(), false});
  if (!empty) {
    chunk.begin.push_back(static_cast<std::uint32_t>(chunk.size));
    std::memcpy(chunk.text + chunk.size, text_.data() + at_, size);
    chunk.size += size;
  }
  at_ += size;
  if (at_ != text_.size()) return;
  ++item_;
  open_ = false;
}

void Packer::add_uncut(Chunk& chunk) {
  auto ids = encode_by_cpu(contexts_, {{text_.substr(at_), item_, at_ != 0}}, plain_, 1);
  chunk.uncut.push_back(std::move(ids.front()));
  chunk.entries.push_back({item_, TT_NONE, at_ == 0, true, true});
  ++item_;
  open_ = false;
}

void Packer::rethrow() const {
  if (failed_) throw *failed_;
}

}  // namespace toktier::gpu
