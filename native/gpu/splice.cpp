// Copies ids, row by row.
#include "splice.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace toktier::gpu {

namespace {

template <typename T>
void grow(T*& array, std::size_t& room, std::size_t wanted) {
  if (wanted <= room && array != nullptr) return;
  wanted = std::max({wanted, room + room / 2, std::size_t(16)});
  void* const grown = std::realloc(array, wanted * sizeof(T));
  if (grown == nullptr) throw std::bad_alloc();
  array = static_cast<T*>(grown);
  room = wanted;
}

}  // namespace

Rows::~Rows() {
  std::free(ids_);
  std::free(splits_);
}

void Rows::reserve(std::size_t texts, std::size_t ids) {
  grow(ids_, room_, ids);
  grow(splits_, row_room_, texts + 1);
  splits_[0] = 0;
}

void Rows::append(const std::uint32_t* ids, std::size_t n) {
  if (n == 0) return;
  grow(ids_, room_, total_ + n);
  std::memcpy(ids_ + total_, ids, n * sizeof *ids);
  total_ += n;
}

void Rows::end_row() {
  grow(splits_, row_room_, rows_ + 2);
  splits_[++rows_] = total_;
}

std::uint32_t* Rows::take_ids() { return std::exchange(ids_, nullptr); }
std::uint64_t* Rows::take_row_splits() { return std::exchange(splits_, nullptr); }

void splice(const Chunk& chunk, const DeviceRows* from, const std::vector<std::vector<std::uint32_t>>& by_cpu,
            const IdsAround& around, IdSink& sink, SpliceCounts& counts) {
  auto cpu = by_cpu.begin();
  auto uncut = chunk.uncut.begin();
  const auto append = [&](const std::vector<std::uint32_t>& ids) { sink.append(ids.data(), ids.size()); };
  for (const Chunk::Entry& entry : chunk.entries) {
    if (entry.first) {
      sink.append(around.before, around.n_before);
      counts.all_device = true;
    }
    const std::uint32_t d = entry.document;
    const bool on_device = d != TT_NONE && from != nullptr && from->flags[d] == 0;
    if (on_device) {
      sink.append_from(*from, from->row[d], from->row[d + 1] - from->row[d]);
      ++counts.device_documents;
    } else if (d != TT_NONE) {
      append(*cpu++);
    } else if (entry.uncut) {
      append(*uncut++);
      ++counts.uncut;
    }
    counts.all_device = counts.all_device && on_device;
    if (!entry.last) continue;
    sink.append(around.after, around.n_after);
    sink.end_row();
    ++counts.texts;
    counts.device_texts += counts.all_device;
  }
  sink.end_chunk(from);
}

}  // namespace toktier::gpu
