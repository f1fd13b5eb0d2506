// How a device image is laid out, and the tables in it as kernels take them, once it lies somewhere. At its begin stands a
// TtGpuTables in which every address is an offset from the begin of the image, 0 for what is absent; each table is aligned to
// 256 bytes. Needs nothing but the contract, so that whoever has the bytes alone can run kernels on them.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "device/abi.h"

namespace toktier::gpu {

constexpr std::uint64_t image_alignment = 256;

// Calls visit(pointer) for every pointer of the tables.
template <typename Visit>
void each_table(TtGpuTables& t, Visit&& visit) {
  visit(t.boundary.class1);
  visit(t.boundary.class2);
  visit(t.boundary.left);
  visit(t.boundary.right);
  visit(t.boundary.matrix);
  for (TtMonoid* m : {&t.left, &t.right}) {
    visit(m->of_class);
    visit(m->of_first);
    visit(m->compose);
    visit(m->state);
  }
  visit(t.quick.stage1);
  visit(t.quick.stage2);
  for (TtAddedTrie& trie : t.added_trie) {
    visit(trie.two_bytes);
    visit(trie.first_edge);
    visit(trie.edge_byte);
    visit(trie.edge_child);
    visit(trie.token);
  }
  visit(t.added);
  visit(t.pieces.lines);
  visit(t.pieces.keys);
  visit(t.pieces.slots);
  visit(t.pieces.raw_offset);
  visit(t.pieces.raw);
  visit(t.token_flags);
  visit(t.pairs.displacement);
  visit(t.pairs.entries);
  visit(t.pairs.product);
  visit(t.pairs.slots);
  visit(t.byte_symbol);
  visit(t.join_bytes);
}

// The tables of an image that lies at `address`, on a device or here.
inline TtGpuTables tables_at(const std::uint8_t* image, std::uint64_t address) {
  TtGpuTables tables;
  std::memcpy(&tables, image, sizeof tables);
  each_table(tables, [&](auto& pointer) {
    const auto offset = reinterpret_cast<std::uintptr_t>(pointer);
    if (offset != 0) pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(address + offset);
  });
  return tables;
}

}  // namespace toktier::gpu
