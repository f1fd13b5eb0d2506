// The order of merge rules. Two rules overlap when one's right side is the other's left side: w·x and x·y over w·x·y, where
// the lower rank wins. For each rule and each side the closest overlapping rule of lower rank is found whose exchange changes what
// w·x·y becomes; a text that shows the change in the whole pipeline tells the two apart. Exchanging the ranks of any two
// overlapping rules turns around at least one pair of neighbours in such an order, so that few texts stand for all pairs; how
// well is measured on a random sample of mutants.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "coverage/vocabulary_search.h"

namespace toktier::coverage {

struct RankOrder {
  std::vector<std::string> texts;
  std::uint64_t pairs = 0;    // closest overlapping pairs whose exchange changes some string of symbols
  std::uint64_t told = 0;     // told apart by a text
  std::uint64_t blocked = 0;  // the string cannot stand inside one piece: proved; the rest is open
};
RankOrder order_texts(const Program& program, Tracer& tracer, VocabularySearch& search);

struct Mutants {
  std::uint64_t tested = 0;
  std::uint64_t killed = 0;  // the exchange changes what one of the texts becomes
  std::uint64_t apart = 0;   // not killed, and w·x·y cannot stand inside one piece, or stays what it is: no text is expected
};
// `count` random pairs of overlapping rules, exchanged.
Mutants rank_mutants(const Program& program, Tracer& tracer, VocabularySearch& search, const std::vector<std::string>& texts,
                     std::uint64_t seed, std::uint32_t count);

// `texts` joined into documents such that each one's ids stand there in one run and its rules fire there too. What cannot be
// joined so stays alone.
std::vector<std::string> join_texts(const Program& program, Tracer& tracer, const std::vector<std::string>& texts);

}  // namespace toktier::coverage
