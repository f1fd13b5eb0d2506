// The three merging kernels beside tt_merge_small, on tables of merges that no tokenizer would have: few symbols, so that pieces
// repeat, and ranks in any order. A C interface, so that Python calls it.
#pragma once
#include <cstdint>

extern "C" {

enum MergeTable : std::uint32_t {
  MERGE_ASCENDING = 0,  // a rule makes a new token, and its sides were made by rules before it: orders are products
  MERGE_SHUFFLED = 1,   // ranks in any order, some tokens made by several rules: there is a table of products
  MERGE_WIDE = 2        // the same, by open addressing
};

struct MergeUnits {
  std::uint64_t seed;       // of the table and the pieces
  std::uint64_t lane_seed;  // of the emulator
  std::uint32_t table;      // MergeTable
  std::uint32_t letters, rules;
  std::uint32_t pieces, shortest, longest;  // bytes
  const char* kernel;
  std::uint32_t queue;      // TtQueue
};

struct MergeCounts {
  std::uint32_t pieces, tokens, merges;
  std::uint32_t interrupted;  // merges after which a lower rank was there than before them
};

// 0: every piece has the tokens of tt_merge_small; else `report` says what the emulator found, or where they differ.
int merge_units_run(const MergeUnits* units, MergeCounts* counts, char* report, std::uint64_t report_bytes);
}
