// The engine's view of a validated program file: plain pointers into the mapped file, and small tables derived when it is
// opened (all of it linear in the file, none of it written afterwards). Internal to native/engine; callers use engine.h.
#pragma once
#include <cstdint>
#include <mutex>
#include <vector>

#include "byte_filters.h"
#include "engine.h"
#include "form_index.h"
#include "shared/bpe.h"
#include "shared/boundary.h"
#include "shared/cuts.h"
#include "shared/join_filter.h"
#include "shared/layout.h"
#include "shared/trie.h"
#include "shared/utf8.h"
#include "split_tables.h"

namespace toktier {

template <typename T>
struct Array {
  const T* data = nullptr;
  std::uint64_t size = 0;  // elements
  const T& operator[](std::uint64_t i) const { return data[i]; }
};

struct NormalizerOp {
  std::uint32_t kind;
  std::string_view a, b;         // Replace, Prepend
  bool strip_left, strip_right;  // Strip
};

struct DecoderOp {
  std::uint32_t kind;
  std::string_view a, b;      // Replace; Strip: a is the character
  std::uint32_t start, stop;  // Strip
};

// Added tokens of one pass: a byte trie, and what lets text without a candidate be passed at memory speed.
struct Matcher {
  Array<std::uint32_t> first_edge;  // [nodes + 1]
  Array<std::uint8_t> edge_byte;
  Array<std::uint32_t> edge_child;
  Array<std::uint32_t> token;           // [nodes] index in added tokens, or none
  std::uint32_t root_child[256];        // child of the root by byte, or none
  std::vector<std::uint64_t> two_bytes; // bit first * 256 + second: a token begins so, or is `first` alone
  StartFilter starts;                   // of the same, wider
  bool empty() const { return two_bytes.empty(); }
};

struct AddedToken {
  std::uint32_t id, flags;
};

// Tables of the canonical or compatibility form; all of NOPS kinds 1 to 4 in one program are one kind.
struct FormTables {
  Array<std::uint32_t> classes;         // rows code point, class
  Array<std::uint32_t> decompositions;  // rows code point, offset, length
  Array<std::uint32_t> decomposed;
  Array<std::uint32_t> compositions;    // rows first, second, composite
};

struct Program {
  std::uint32_t conf[TT_CONF_FIELDS];
  bool flag(TtFlag f) const { return (conf[TT_CONF_FLAGS] & f) != 0; }
  std::uint32_t n_ids = 0;

  // Pre-tokenizer. `steps[state * n_class + class]` = next state * n_class << 8 | action: one load for both.
  TtBoundary boundary{};
  std::vector<std::uint32_t> steps;
  SplitProgram split;
  std::uint8_t ascii_class[128];
  TtTrie<std::uint8_t> chars{};  // CHR

  // Normalizer.
  std::vector<NormalizerOp> normalizer;
  TtTrie<std::uint8_t> quick{};  // NQC
  FormTables form{};
  FormIndex form_index;                    // of them
  Array<std::uint32_t> lower, lower_text;  // rows code point, offset, length
  std::uint8_t ascii_lower[128];           // 0xFF: not a single ASCII character
  std::uint8_t ascii_quick[128];           // NQC of the ASCII characters
  bool ascii_inert = false;                // every ASCII character is inert and begins a unit
  CharacterFilter not_inert;               // the others that are not inert, and few more

  // Added tokens: pass 0 on raw text, pass 1 on normalized text.
  Matcher matcher[2];
  std::vector<AddedToken> added;

  // Vocabulary.
  Array<std::uint32_t> string_offset, raw_offset;
  Array<std::uint8_t> string_bytes, raw_bytes, token_flags;
  TtPieceTable pieces{};
  TtPieceTable strings{};  // over STRO/STRB

  // Model.
  TtPairTable pairs{};
  bool all_bytes = false;                  // every byte has an initial symbol
  const std::uint32_t* byte_symbol = nullptr;
  TtTrie<std::uint32_t> char_symbol{};
  Array<std::uint32_t> fallback;           // [256] or empty
  std::uint32_t ascii_symbol[128];
  TtJoinFilter joins{};                    // of adjacent characters; JBYT and JSYM are exact
  const std::uint8_t* join_bytes = nullptr;
  TtJoinTable join_symbols{};
  std::vector<std::uint64_t> join_ascii;   // join_kind 2: bit a * 128 + b, or both without symbol

  TtCuts cuts{};

  // After the model.
  Array<std::uint32_t> before, after;  // special tokens of the template
  std::vector<DecoderOp> decoder;
  Array<std::uint32_t> decode_offset;  // DBYO
  Array<std::uint8_t> decode_bytes;

  std::string_view token_text(std::uint32_t id) const {
    const std::uint32_t begin = string_offset[id];
    return {reinterpret_cast<const char*>(string_bytes.data) + begin, string_offset[id + 1] - begin};
  }
  std::string_view raw_text(std::uint32_t id) const {
    const std::uint32_t begin = raw_offset[id];
    return {reinterpret_cast<const char*>(raw_bytes.data) + begin, raw_offset[id + 1] - begin};
  }
  // The rank of a rule among the live ones, by its order in the pair table. For reports: made when it is first asked for.
  std::uint32_t rank_of(std::uint32_t order) const;
  std::uint8_t char_bits(std::uint32_t cp) const { return tt_trie(chars, cp); }

 private:
  mutable std::once_flag ranked_;
  mutable std::vector<std::uint32_t> ranks_;
};

}  // namespace toktier
