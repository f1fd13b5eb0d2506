// Ids of a segment, many words at a time: the spans of a window are looked up together in a cache of short words, what it lacks
// is made together, and the ids are handed out in order. A span is a piece, or a part of one between two cuts that no merge
// crosses. No offsets: those are piece_encoder.h's, and so is every piece that does not fit here.
#pragma once
#include "lanes/cut_lanes.h"
#include "lanes/merge_lanes.h"
#include "long_words.h"
#include "piece_encoder.h"
#include "split_windows.h"
#include "word_cache.h"

namespace toktier {

class WordEncoder {
 public:
  // `pieces` encodes what is long or rare. `cache_lines`: see Context.
  WordEncoder(const Program& program, Level level, WindowSplitter& splitter, PieceEncoder& pieces, std::uint32_t cache_lines);

  // Appends the ids of the whole segment.
  void encode(const Segment& segment, Scratch<std::uint32_t>& ids);
  std::size_t bytes() const;  // of what grows with the text
  void release();

 private:
  static constexpr std::uint32_t batch = 64;
  static constexpr std::uint32_t few = 64;  // spans of a short text: half a kilobyte
  static constexpr std::uint32_t full = 2048;  // spans that are enough for a run
  static constexpr std::uint32_t most_waiting = full + window_bytes + 80;  // bounds, and what loops may write behind them

  void take(SplitWindow& window);
  void prepare_marks(std::uint32_t first);
  void mark_dropped(const SplitWindow& window, std::uint32_t first);
  void run(std::uint32_t count);
  void make_missed(const WordWindow& w);
  void make_by_pieces(const WordWindow& w);
  void make_longer(WordWindow& w);
  void queue(const WordWindow& w, std::uint32_t span, const WordKey& key, std::uint32_t line);  // of a short word
  void merge_queued(const WordWindow& w);
  bool is_allowed(std::uint32_t id, bool part) const;
  std::uint32_t find_entry(const std::uint8_t* text, std::uint32_t size, bool part) const;
  void put(WordValue& value, const std::uint32_t* ids, std::uint32_t count);
  void put_made(WordValue& value, std::uint32_t place);
  void emit(const WordWindow& w);
  static bool is_part(const WordWindow& w, std::uint32_t span) { return w.kind != nullptr && w.kind[span] == word_part; }

  const Program& program_;
  const WordLanes& lanes_;
  const MergeLanes& merging_;
  const CutLanes& cutting_;
  WindowSplitter& splitter_;
  PieceEncoder& pieces_;
  const bool merges_here_;  // a model of bytes that all have symbols
  const MergeTables tables_;
  const Level level_;
  WordCache cache_;
  LongWords long_words_;
  const std::uint8_t part_kind_;  // word_part where a part may not use the entries of whole pieces
  const bool cuts_ascii_;          // between ASCII characters too

  // Of the running call.
  const Segment* segment_ = nullptr;
  Scratch<std::uint32_t>* ids_ = nullptr;

  // Spans that wait: span k is segment[bound_[k], bound_[k + 1]), the last one is open.
  Scratch<std::uint32_t> bound_;
  Scratch<std::uint8_t> mark_, kind_;  // WordKind: what begins at each bound, a part being a cut; and what each span is
  std::uint32_t waiting_ = 0;
  bool marked_ = false;  // marks are written, because some are not word_piece

  // Of the running window.
  Scratch<WordValue> value_;
  Scratch<std::uint32_t> missed_, longer_;
  TokenBuffer many_;  // ids of spans with more than a value holds
  TokenBuffer again_;
  std::uint32_t queued_ = 0;
  std::uint32_t queued_span_[batch], queued_line_[batch];
  WordKey queued_key_[batch];
  MergeWord queue_[batch];
};

}  // namespace toktier
