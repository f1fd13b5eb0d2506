// What a normalization form says of a code point, in one place: combining class, decomposition, and its part in compositions.
// Made when a program is opened, from tables that are sorted lists (docs/program-format.md, N... sections).
#pragma once
#include <cstdint>
#include <vector>

#include "shared/layout.h"

namespace toktier {

struct FormTables;

struct FormInfo {
  std::uint8_t combining_class;
  std::uint8_t is_second;       // 1: the second half of some composition
  std::uint16_t decomposition;  // row of FormTables::decompositions, plus one; 0: none
  std::uint16_t first;          // the row of FormTables::compositions where those with it as first half begin
  std::uint16_t first_count;    // and how many they are
};

class FormIndex {
 public:
  void build(const FormTables& form);
  const FormInfo& operator[](std::uint32_t cp) const {
    return blocks_[std::size_t{block_[cp >> TT_TRIE_SHIFT]} << TT_TRIE_SHIFT | (cp & (TT_TRIE_BLOCK - 1))];
  }

 private:
  FormInfo& at(std::uint32_t cp);
  std::vector<std::uint16_t> block_;  // by the upper bits of the code point; block 0 is empty
  std::vector<FormInfo> blocks_;
};

}  // namespace toktier
