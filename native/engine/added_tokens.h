// Added tokens in a text: leftmost-longest, without overlap, with the reference's rules for special, single_word, lstrip and
// rstrip (docs/reference-semantics.md). Yields the kept matches in order; the text between them is the caller's.
#pragma once
#include <cstdint>

#include "lanes/scan_lanes.h"
#include "program.h"

namespace toktier {

struct AddedMatch {
  std::uint32_t begin, end;  // bytes, white space that the flags take in included
  std::uint32_t token;       // index in Program::added
};

class AddedTokenScan {
 public:
  // `pass` 0 for raw text, 1 for normalized text. `plain`: special tokens are ordinary text.
  AddedTokenScan(const Program& program, const ScanLanes& lanes, int pass, const std::uint8_t* text, std::uint32_t size,
                 bool plain)
      : program_(program), matcher_(program.matcher[pass]), lanes_(lanes), text_(text), size_(size), plain_(plain) {}

  bool next(AddedMatch& match);
  // Where the last kept match ended: text from here to the next match is a segment. A match that begins before it is emitted
  // whole and moves it back, as in the reference.
  std::uint32_t kept_end() const { return kept_end_; }

 private:
  bool find(AddedMatch& match);
  std::uint32_t candidate(std::uint32_t from);
  bool is_word_at(std::uint32_t position) const;
  bool is_word_before(std::uint32_t position) const;
  std::uint32_t space_begin(std::uint32_t position) const;
  std::uint32_t space_end(std::uint32_t position);

  const Program& program_;
  const Matcher& matcher_;
  const ScanLanes& lanes_;
  const std::uint8_t* text_;
  std::uint32_t size_;
  bool plain_;
  std::uint32_t at_ = 0, kept_end_ = 0;
  // Places that were found and not looked at yet: bit i is that of block_ + i. The block ends at block_end_.
  std::uint64_t places_ = 0;
  std::uint32_t block_ = 0, block_end_ = 0;
  std::uint32_t space_from_ = 1, space_to_ = 0;  // white space already walked: many rstrip tokens in one run stay linear
};

}  // namespace toktier
