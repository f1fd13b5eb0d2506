// Lines hold ten strings on average of the sixteen that they have room for: at that load one line in thirty overflows into the
// next, and the lines of 150,000 strings take one megabyte.
#include "compile/string_tables.h"

#include <cstring>

#include "compile/probing.h"
#include "shared/piece_table.h"

namespace toktier::compile {

namespace {

constexpr std::uint32_t kPerLine = 10;
constexpr std::uint32_t kLongestRun = kLongestProbe / TT_LINE_SLOTS;  // lines

const tt_u8* bytes_of(std::string_view s) { return reinterpret_cast<const tt_u8*>(s.data()); }

}  // namespace

std::string_view string_at(const Blob& blob, std::size_t i) {
  return {reinterpret_cast<const char*>(blob.bytes.data()) + blob.offsets[i], blob.offsets[i + 1] - blob.offsets[i]};
}

StringTable::StringTable(const Blob& blob, std::uint64_t entries) : blob_(blob) {
  if (blob.offsets.size() - 1 <= TT_SLOT_IDS) {
    lines_.assign((entries / kPerLine + 1) * TT_LINE_SLOTS, TT_NONE);
    return;
  }
  std::uint64_t capacity = 2;
  while (capacity < 2 * entries) capacity *= 2;
  slots_.assign(capacity, TT_NONE);
  hashes_.assign(capacity, 0);
}

std::uint32_t StringTable::add(std::uint32_t id) {
  const std::string_view key = string_at(blob_, id);
  const auto length = std::uint32_t(key.size());
  const std::uint64_t hash = tt_hash_piece(tt_piece_key(bytes_of(key), length), bytes_of(key), length);
  return lines_.empty() ? add_to_slots(id, key, hash) : add_to_lines(id, key, hash);
}

std::uint32_t StringTable::add_to_lines(std::uint32_t id, std::string_view key, std::uint64_t hash) {
  const std::uint32_t mark = tt_piece_mark(hash), count = std::uint32_t(lines_.size() / TT_LINE_SLOTS);
  std::uint32_t line = tt_piece_line(hash, count);
  for (std::uint32_t run = 0; run < kLongestRun; ++run, line = line + 1 == count ? 0 : line + 1) {
    std::uint32_t* const slots = lines_.data() + std::size_t{line} * TT_LINE_SLOTS;
    for (std::uint32_t i = 0; i < TT_LINE_SLOTS; ++i) {
      if (slots[i] == TT_NONE) return slots[i] = mark << TT_SLOT_ID_BITS | id, id;
      const std::uint32_t other = slots[i] & TT_SLOT_IDS;
      if (slots[i] >> TT_SLOT_ID_BITS == mark && string_at(blob_, other) == key) return other;
    }
  }
  throw CompileError{kKeysMeet};
}

std::uint32_t StringTable::add_to_slots(std::uint32_t id, std::string_view key, std::uint64_t hash) {
  Probe probe(hash, slots_.size() - 1);
  for (; slots_[probe.at()] != TT_NONE; probe.next()) {
    const std::uint32_t other = slots_[probe.at()];
    if (hashes_[probe.at()] == std::uint32_t(hash >> 32) && string_at(blob_, other) == key) return other;
  }
  slots_[probe.at()] = id;
  hashes_[probe.at()] = std::uint32_t(hash >> 32);
  return id;
}

std::vector<std::uint64_t> piece_keys(const Blob& blob, const std::vector<std::uint8_t>& flags, std::uint8_t wanted) {
  std::vector<std::uint64_t> keys(2 * flags.size(), 0);
  for (std::size_t id = 0; id < flags.size(); ++id) {
    if ((flags[id] & wanted) == 0) continue;
    const std::string_view text = string_at(blob, id);
    const TtPieceKey key = tt_piece_key(bytes_of(text), std::uint32_t(text.size()));
    keys[2 * id] = key.low;
    keys[2 * id + 1] = key.high;
  }
  return keys;
}

}  // namespace toktier::compile
