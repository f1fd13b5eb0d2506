// Groups are merged as they come: the ninth makes two of the nine one, the two that cost least. What a merge costs is the number
// of byte sequences that it adds to what is found.
#include "byte_filters.h"

#include <bit>

#include "shared/utf8.h"

namespace toktier {

namespace {

constexpr std::size_t most_groups = 8;

// `Group` has merged(other) and size(): the number of byte sequences that it finds.
template <typename Group>
void add_group(std::vector<Group>& groups, const Group& added) {
  groups.push_back(added);
  if (groups.size() <= most_groups) return;
  std::size_t best_a = 0, best_b = 1;
  std::int64_t least = INT64_MAX;
  for (std::size_t a = 0; a < groups.size(); ++a)
    for (std::size_t b = a + 1; b < groups.size(); ++b) {
      const std::int64_t cost = groups[a].merged(groups[b]).size() - groups[a].size() - groups[b].size();
      if (cost < least) least = cost, best_a = a, best_b = b;
    }
  groups[best_a] = groups[best_a].merged(groups[best_b]);
  groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(best_b));
}

struct StartGroup {
  std::uint16_t first_low = 0, first_high = 0, second_low = 0, second_high = 0;  // bit by half
  StartGroup merged(const StartGroup& o) const {
    const auto join = [](int a, int b) { return static_cast<std::uint16_t>(a | b); };
    return {join(first_low, o.first_low), join(first_high, o.first_high), join(second_low, o.second_low),
            join(second_high, o.second_high)};
  }
  std::int64_t size() const {
    return std::int64_t{std::popcount(first_low)} * std::popcount(first_high) * std::popcount(second_low) *
           std::popcount(second_high);
  }
};

struct CharacterGroup {
  std::uint64_t lead = 0, second = 0, third = 0;
  CharacterGroup merged(const CharacterGroup& o) const { return {lead | o.lead, second | o.second, third | o.third}; }
  std::int64_t size() const { return std::int64_t{std::popcount(lead)} * std::popcount(second) * std::popcount(third); }
};

}  // namespace

StartFilter make_start_filter(const std::vector<TokenStart>& starts) {
  StartFilter filter;
  std::vector<StartGroup> groups;
  for (const TokenStart& start : starts) {
    filter.is_first[start.first] = 1;
    StartGroup group;
    group.first_low = static_cast<std::uint16_t>(1u << (start.first & 15));
    group.first_high = static_cast<std::uint16_t>(1u << (start.first >> 4));
    for (unsigned second = 0; second < 256; ++second)
      if ((start.second[second >> 6] >> (second & 63) & 1) != 0) {
        group.second_low = static_cast<std::uint16_t>(group.second_low | 1u << (second & 15));
        group.second_high = static_cast<std::uint16_t>(group.second_high | 1u << (second >> 4));
      }
    add_group(groups, group);
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto mark = [g](std::uint8_t* table, std::uint16_t halves) {
      for (unsigned k = 0; k < 16; ++k)
        if ((halves >> k & 1) != 0) table[k] = static_cast<std::uint8_t>(table[k] | 1u << g);
    };
    mark(filter.first_low, groups[g].first_low);
    mark(filter.first_high, groups[g].first_high);
    mark(filter.second_low, groups[g].second_low);
    mark(filter.second_high, groups[g].second_high);
  }
  return filter;
}

CharacterFilter make_character_filter(const TtTrie<std::uint8_t>& trie, std::uint8_t bits) {
  std::vector<CharacterGroup> groups;
  const auto bit = [](std::uint32_t byte) { return std::uint64_t{1} << (byte & 63); };
  CharacterGroup page;  // the characters that share all but their last byte, or two bytes of four
  std::uint32_t page_of = 0;
  const auto close_page = [&] {
    if (page.lead != 0) add_group(groups, page);
    page = {};
  };
  std::uint32_t clean = TT_NONE;  // a block of the trie without such characters: most of them are the same one
  for (std::uint32_t cp = 0x80; cp < 0x110000; ++cp) {
    if (cp % TT_TRIE_BLOCK == 0 && trie.stage1[cp >> TT_TRIE_SHIFT] == clean) {
      cp += TT_TRIE_BLOCK - 1;
      continue;
    }
    if (cp % TT_TRIE_BLOCK == 0) {
      const std::uint8_t* const values = trie.stage2 + (std::size_t{trie.stage1[cp >> TT_TRIE_SHIFT]} << TT_TRIE_SHIFT);
      std::uint8_t any = 0;
      for (std::uint32_t k = 0; k < TT_TRIE_BLOCK; ++k) any = static_cast<std::uint8_t>(any | values[k]);
      if ((any & bits) == 0) {
        clean = trie.stage1[cp >> TT_TRIE_SHIFT];
        cp += TT_TRIE_BLOCK - 1;
        continue;
      }
    }
    if ((tt_trie(trie, cp) & bits) == 0) continue;
    std::uint8_t text[4];
    const std::uint32_t length = tt_utf8_write(cp, text);
    const std::uint32_t key = length == 3 ? cp >> 6 : length == 4 ? 0x10000 | cp >> 12 : 0x20000 | cp >> 6;
    if (key != page_of) close_page();
    page_of = key;
    page.lead |= bit(text[0]);
    page.second |= bit(text[1]);
    page.third |= length == 3 ? bit(text[2]) : ~std::uint64_t{0};
  }
  close_page();
  CharacterFilter filter;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (unsigned k = 0; k < 64; ++k) {
      const auto mark = [&](std::uint8_t* table, std::uint64_t set) {
        if ((set >> k & 1) != 0) table[k] = static_cast<std::uint8_t>(table[k] | 1u << g);
      };
      mark(filter.lead, groups[g].lead);
      mark(filter.second, groups[g].second);
      mark(filter.third, groups[g].third);
    }
  return filter;
}

}  // namespace toktier
