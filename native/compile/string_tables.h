// Builds tables from byte strings to ids (kernels/shared/piece_table.h): lines of a cache line each, or open addressing where ids
// do not fit.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "compile/bpe_tables.h"

namespace toktier::compile {

class StringTable {
 public:
  // For up to `entries` strings of `blob`.
  StringTable(const Blob& blob, std::uint64_t entries);
  // The id that already has this string, or `id` when it was added. Throws CompileError for strings made to meet in one place.
  std::uint32_t add(std::uint32_t id);
  std::vector<std::uint32_t> take_lines() { return std::move(lines_); }  // empty: the wide form
  std::vector<std::uint32_t> take_slots() { return std::move(slots_); }  // empty: lines

 private:
  std::uint32_t add_to_lines(std::uint32_t id, std::string_view key, std::uint64_t hash);
  std::uint32_t add_to_slots(std::uint32_t id, std::string_view key, std::uint64_t hash);

  const Blob& blob_;
  std::vector<std::uint32_t> lines_, slots_, hashes_;
};

// PKEY: the record of each id that `wanted` says yes to, zero for the others.
std::vector<std::uint64_t> piece_keys(const Blob& blob, const std::vector<std::uint8_t>& flags, std::uint8_t wanted);

std::string_view string_at(const Blob& blob, std::size_t i);

}  // namespace toktier::compile
