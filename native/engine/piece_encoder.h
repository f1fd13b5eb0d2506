// One piece of text to ids: whole-piece table, then merges. Long pieces are first cut where no merge can cross, short results
// are remembered. What a piece is was decided before (splitter.h); added tokens are not known here.
#pragma once
#include "long_piece.h"
#include "piece_cache.h"
#include "program.h"
#include "scratch.h"
#include "segment.h"

namespace toktier {

struct TokenBuffer {
  Scratch<std::uint32_t> ids;
  Scratch<Offset> offsets;  // filled when the segment has origins
};

class PieceEncoder {
 public:
  explicit PieceEncoder(const Program& program);
  // Appends the ids of `count` pieces that lie side by side: piece k is segment[bounds[k], bounds[k + 1]), and nothing when it is
  // empty or dropped[k] is TT_BOUNDARY_DROPPED. Many at once, so that what they will look up is under way before it is needed.
  void encode(const Segment& segment, const std::uint32_t* bounds, const std::uint8_t* dropped, std::uint32_t count,
              TokenBuffer& out);
  // Ids, without offsets, of one word (word_encoder.h): a piece, or a part of one between two cuts. `readable`: bytes of the
  // segment from `text` on.
  void encode_word(const std::uint8_t* text, std::uint32_t size, std::uint64_t readable, bool part, TokenBuffer& out);
  std::size_t bytes() const;
  void release();

 private:
  // A run of symbols without a cut inside, in the order in which the model sees them.
  struct Part {
    std::uint32_t text_begin = 0, text_end = 0;  // bytes of the piece it was made from, when `contiguous`
    std::uint32_t position = 0;                  // where its first symbol begins: sum of the lengths of all symbols before
    bool contiguous = false;                     // its symbols spell exactly that text
  };
  // A stretch of the piece that may be looked up and remembered.
  struct Stretch {
    std::uint32_t begin, size;  // bytes of the piece
    std::uint32_t position;     // of its first symbol
    bool is_piece;              // the whole piece: entries that only ignore_merges reaches count
  };
  enum class Join { unknown, yes, no };

  void encode_uncached(std::uint32_t size, bool is_piece);
  void encode_bytes(std::uint32_t size, bool is_piece);
  void encode_incomplete_bytes(std::uint32_t size);
  void encode_characters(std::uint32_t size, bool is_piece);
  void byte_part(const Stretch& stretch, bool looked_up);
  void push_symbol(std::uint32_t symbol, std::uint32_t length, std::uint32_t text_begin, bool spelled, Join join);
  void close_part(bool is_piece);

  bool look_up(const Stretch& stretch);
  bool emit_remembered(const std::uint32_t* ids, std::uint32_t count, const Stretch& stretch);
  void remember(const Stretch& stretch, const std::uint32_t* ids, std::uint32_t count);
  template <typename Cache>
  typename Cache::Key key_of(const Stretch& stretch) const;
  template <typename Cache>
  bool emit_from(const Cache& cache, const Stretch& stretch);
  void emit(std::uint32_t id, std::uint32_t begin, std::uint32_t end);
  void merge_and_emit(const Stretch* stretch, std::uint32_t position);
  template <typename Source, typename EndOf>
  void merge_in_windows(const Source& source, std::uint32_t position, EndOf&& end_of);

  const Program& program_;
  const bool parts_apart_;  // a part may not use the entries of whole pieces
  const std::uint32_t max_piece_;
  ShortCache short_;
  LongCache long_;
  WideCache wide_;

  // Of the running call.
  TokenBuffer* out_ = nullptr;
  const std::uint32_t* origin_ = nullptr;  // of the piece's bytes
  const std::uint8_t* text_ = nullptr;
  std::uint64_t readable_ = 0;             // bytes of the segment from text_ on
  const std::uint32_t* mapped_ = nullptr;  // position → byte of the piece, when positions are not bytes
  Part part_;

  Scratch<TtSymbol> symbols_;
  Scratch<std::uint32_t> mapping_;
  HeapMerger heap_;
  WindowMerger windows_;
};

}  // namespace toktier
