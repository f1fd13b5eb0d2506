#include "form_index.h"

#include "program.h"

namespace toktier {

FormInfo& FormIndex::at(std::uint32_t cp) {
  std::uint16_t& block = block_[cp >> TT_TRIE_SHIFT];
  if (block == 0) {
    block = static_cast<std::uint16_t>(blocks_.size() >> TT_TRIE_SHIFT);
    blocks_.resize(blocks_.size() + TT_TRIE_BLOCK);
  }
  return blocks_[std::size_t{block} << TT_TRIE_SHIFT | (cp & (TT_TRIE_BLOCK - 1))];
}

void FormIndex::build(const FormTables& form) {
  block_.assign(TT_TRIE_STAGE1, 0);
  blocks_.assign(TT_TRIE_BLOCK, FormInfo{});
  for (std::uint64_t i = 0; i < form.classes.size; i += 2)
    at(form.classes[i]).combining_class = static_cast<std::uint8_t>(form.classes[i + 1]);
  for (std::uint64_t i = 0; i < form.decompositions.size; i += 3)
    at(form.decompositions[i]).decomposition = static_cast<std::uint16_t>(i / 3 + 1);
  for (std::uint64_t i = 0; i < form.compositions.size; i += 3) {
    FormInfo& first = at(form.compositions[i]);
    if (first.first_count++ == 0) first.first = static_cast<std::uint16_t>(i / 3);
    at(form.compositions[i + 1]).is_second = 1;
  }
}

}  // namespace toktier
