// Checks of single tables of a program file: ranges, orders, probe ends. Each throws ProgramError naming the section.
// Branch-light on purpose: a program has 10 to 20 MB of tables, and opening it must stay a matter of milliseconds.
#pragma once
#include <cstdint>
#include <string>

#include "program.h"

namespace toktier {

[[noreturn]] void refuse(const char* section, std::string what);
void require(bool ok, const char* section, const char* what);

// Every value is below `limit`.
void check_below(const char* section, Array<std::uint8_t> values, std::uint32_t limit);
void check_below(const char* section, Array<std::uint16_t> values, std::uint32_t limit);
// Every value is TT_NONE or below `limit`.
void check_ids(const char* section, Array<std::uint32_t> values, std::uint32_t limit);
// Ascending offsets, the last one not beyond `bytes`.
void check_offsets(const char* section, Array<std::uint32_t> offsets, std::uint64_t bytes);
// Ascending, so that binary search works: by the first `keys` columns of rows of `columns`.
void check_ascending(const char* section, Array<std::uint32_t> rows, std::uint32_t columns, std::uint32_t keys);
// Every value is a Unicode scalar value; `columns` > 1 looks at the first `checked` columns of each row.
void check_scalars(const char* section, Array<std::uint32_t> rows, std::uint32_t columns, std::uint32_t checked);
// Rows whose columns 1 and 2 are an offset and a length (1 to `longest`) in a table of `size` elements.
void check_spans(const char* section, Array<std::uint32_t> rows, std::uint64_t size, std::uint32_t longest);
// Valid UTF-8, and no offset in the middle of a character.
void check_utf8(const char* section, Array<std::uint8_t> bytes);
void check_starts(const char* section, Array<std::uint8_t> bytes, Array<std::uint32_t> offsets);
// Open addressing with rows of `columns`, empty where column 0 is none: capacity a power of two, at most half full.
// Every column is an id below `limit`.
void check_hash(const char* section, Array<std::uint32_t> slots, std::uint32_t columns, std::uint32_t limit);
// Every value is below `limit`, none included.
void check_each_id(const char* section, Array<std::uint32_t> values, std::uint32_t limit);
// Lines of slots: ids below `limit`, at least one slot empty, so that a look-up ends.
void check_lines(const char* section, Array<std::uint32_t> slots, std::uint32_t limit);
// Merges: ids below `limit`, orders below `orders`.
void check_pairs(Array<std::uint8_t> displacement, Array<tt_u64> entries, std::uint32_t limit, std::uint64_t orders);
void check_wide_pairs(Array<std::uint32_t> slots, std::uint32_t limit, std::uint64_t orders);
// A set of 2^6 to 2^31 bits; returns 32 - log2 of them.
std::uint32_t check_bit_set(const char* section, Array<std::uint32_t> words);
void check_trie1(const char* section, Array<std::uint16_t> stage1, std::uint64_t stage2_size);
// The token automaton never speaks of a position that is not pending, never out of order, never of more than three.
void check_token_automaton(const TtBoundary& b);
// Edges ascending, children later than their parents (so no cycle), tokens in range.
void check_matcher(const char* section, const Matcher& matcher, std::uint32_t tokens);

}  // namespace toktier
