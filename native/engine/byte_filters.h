// Makes the filters of lanes/scan_lanes.h from the tables of a program, when it is opened. A filter has room for eight groups:
// what does not fit apart is put together so that as little as possible is found in vain.
#pragma once
#include <cstdint>
#include <vector>

#include "lanes/scan_lanes.h"
#include "shared/trie.h"

namespace toktier {

// What tokens that begin with the byte `first` may have as their second byte: bit by byte.
struct TokenStart {
  std::uint8_t first;
  std::uint64_t second[4];
};
StartFilter make_start_filter(const std::vector<TokenStart>& starts);

// The characters beyond ASCII whose value in the trie has one of `bits`.
CharacterFilter make_character_filter(const TtTrie<std::uint8_t>& trie, std::uint8_t bits);

}  // namespace toktier
