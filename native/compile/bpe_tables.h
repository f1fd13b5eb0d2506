// From vocabulary and merge rules to the BPE sections of a program file (docs/program-format.md): pair table of the rules that
// can fire, look-up tables of pieces and strings, token flags, cuts inside a piece. Plain C++; no Python, no file format.
// Not here: reading tokenizer.json, code-point tries, anything that encodes text at run time (native/engine).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compile/pair_table.h"

namespace toktier::compile {

// Input that no tokenizer.json can mean: one sentence.
struct CompileError {
  std::string what;
};

// Byte strings by index: string i is bytes[offsets[i] .. offsets[i + 1]).
struct Blob {
  std::vector<std::uint32_t> offsets;
  std::vector<std::uint8_t> bytes;
};

struct BpeInput {
  Blob raw;                           // by id: what a piece must read to be the token; empty: no piece can
  Blob strings;                       // by id: token strings, UTF-8
  std::vector<std::uint8_t> flags;    // by id: EXISTS, MODEL, ADDED, SPECIAL of TFLG
  std::vector<std::uint32_t> merges;  // rows left, right, product in rank order; no pair twice
  bool byte_level = true;
  std::vector<std::uint32_t> initial;        // byte_level: [256] symbol of a byte or none; else rows code point, id
  std::vector<std::uint32_t> byte_fallback;  // [256] symbol of a byte or none; empty: no byte fallback
  std::uint32_t unk_id = 0xFFFFFFFFu;        // symbol of an unknown character, or none
  bool ignore_merges = false;
};

struct BpeStatistics {
  std::uint64_t merges = 0, live = 0, dead = 0;
  std::uint64_t kept_unproved = 0;  // of `live`: rules that a fallback or unknown symbol may reach, kept without proof
  std::uint64_t tokens = 0, reachable = 0, unreachable = 0;  // of the model vocabulary
  bool monotone = true;             // every live rule ranks after those that make its two sides
  std::uint32_t max_piece = 0;
};

struct BpeTables {
  PairTable merges;
  std::vector<std::uint32_t> plin, phsh, vlin, vhsh;  // lines, or the wide form of each
  std::vector<std::uint64_t> pkey;
  std::vector<std::uint32_t> jsym, jchr, jfrg;
  std::vector<std::uint8_t> tflg, jbyt;  // jbyt, jsym: both empty when there are no cuts inside a piece
  std::vector<std::uint32_t> live_merges;  // rows left, right, product of the rules kept, in rank order
  BpeStatistics statistics;
};

// Memory and time are linear in the input but for the proofs, which take n log n in the length n of one token.
// Throws CompileError.
BpeTables build_bpe(const BpeInput& input);

}  // namespace toktier::compile
