// The inner loops over the spans of a window, once for each level: look-up in the word cache, and handing out what was found.
#pragma once
#include "engine/word_key.h"
#include "lanes.h"
#include "shared/piece_table.h"

namespace toktier {

constexpr std::uint32_t most_found = 64;  // words that find_entries takes

struct WordLanes {
  // Line of a key; the same for all of one level, and for one level only.
  std::uint32_t (*line_of)(const WordKey& key, std::uint32_t mask);
  // Keys of short spans of the window, and their lines, which are asked for together with the lines beside them.
  void (*list_keys)(const WordWindow& window, const std::uint32_t* spans, std::uint32_t count, WordKey* keys,
                    std::uint32_t* lines);
  // Looks all spans up. Values of spans that are missed, or longer, are undefined.
  void (*look_up)(WordWindow& window);
  // For a window of few pieces: looks up and hands out in one go, and says false, with `out` where it was, where a piece is not
  // among `lines`, is longer, or has more than inline_ids. `out` as in emit. Slower than the two for many: a line that is not in
  // the nearest cache is waited for.
  bool (*emit_known)(const WordWindow& window, std::uint32_t*& out);
  // Appends the ids of spans [from, count) at `out` up to the first span with more than inline_ids: returns its index, or
  // `count`. `out` moves behind the ids; four ids more may be written than belong there.
  std::uint32_t (*emit)(const WordValue* values, std::uint32_t from, std::uint32_t count, std::uint32_t*& out);
  // Ids of the entries of a compact table that read the words, or TT_NONE; of up to most_found keys, parts or not.
  void (*find_entries)(const TtPieceTable& table, const WordKey* keys, std::uint32_t count, std::uint32_t* ids);
};

TOKTIER_LANE_DECLARE(WordLanes, word_lanes)

}  // namespace toktier
