// Whether bytes can stand inside one piece of some text, decided without a text. Every "no" is a proof, by over-approximation:
// all left and right states of the boundary automaton, all completions of a character that is only partly there.
//
// invalid_utf8   no valid UTF-8 contains the bytes
// normalizer     the last step of the normalizer never leaves them: its form is closed under substrings and changes them, or it
//                replaces or lowers a character in them
// added_token    an added token in them is taken first, wherever they stand
// pre_tokenizer  in every context a piece begins or ends inside of them, or the piece is dropped
//
// Not here: what merging does inside a piece (adjacency.h).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "coverage/characters.h"
#include "engine/normalizer.h"
#include "engine/program.h"

namespace toktier::coverage {

enum class Obstacle : std::uint8_t { none, invalid_utf8, normalizer, added_token, pre_tokenizer };

struct Place {
  Obstacle obstacle = Obstacle::none;
  // Where there is no obstacle: whether a piece may begin with the bytes, may end with them, may be exactly them, may hold more.
  bool begins = true, ends = true, exact = true, inner = true;
};

class Possibility {
 public:
  explicit Possibility(const Program& program);
  Place judge(std::string_view bytes);
  // False where the normalizer never leaves these whole characters. True says nothing.
  bool is_left(std::string_view text);

  // Texts that bring the boundary automaton into each of its states, shortest first; the first one is empty.
  const std::vector<std::string>& befores() const { return befores_; }
  const std::vector<std::string>& behinds() const { return behinds_; }
  // Of each class a character that the normalizer leaves, printable ASCII where there is one, and another one, far from it.
  const std::vector<std::uint32_t>& representatives() const { return representatives_; }

 private:
  void find_representatives();
  void find_states();
  bool lowered(std::uint32_t cp) const;
  bool has_added_token(std::string_view bytes) const;
  bool holds(int pass, std::string_view bytes) const;
  bool is_left_alone(std::string_view text) const;
  const std::vector<std::uint8_t>& classes(std::string_view part, bool head);
  Place walk(const Parts& parts);
  Place walk(const std::vector<std::uint8_t>& middle, const Parts& parts);

  const Program& program_;
  std::vector<std::uint8_t> left_reached_, right_reached_;  // states; right ones of text that is not empty
  std::vector<std::string> befores_, behinds_;
  std::vector<std::uint32_t> representatives_;
  std::vector<std::uint32_t> lowered_to_;  // ascending: code points that lowering may leave
  std::map<std::pair<std::string, bool>, std::vector<std::uint8_t>> classes_;
  std::unordered_map<std::string, Place> walked_;  // by classes of the middle, and the bytes at both ends
  bool certain_[2] = {};  // no match of this pass is ever thrown away
  FormScratch form_;
  SegmentBuffer rewritten_;
};

}  // namespace toktier::coverage
