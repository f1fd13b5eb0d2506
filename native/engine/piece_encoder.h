// One piece of text to ids: whole-piece table, then merges. Long pieces are first cut where no merge can cross, short results
// are remembered. What a piece is was decided before (splitter.h); added tokens are not known here.
#pragma once
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
  // Appends the ids of segment[begin, end), a piece.
  void encode(const Segment& segment, std::uint32_t begin, std::uint32_t end, TokenBuffer& out);
  std::size_t bytes() const;
  void release();

 private:
  // A run of symbols without a cut inside, in the order in which the model sees them.
  struct Part {
    std::uint32_t text_begin = 0, text_end = 0;  // bytes of the piece it was made from, when `contiguous`
    std::uint32_t position = 0;                  // where its first symbol begins: sum of the lengths of all symbols before
    bool contiguous = false;                     // its symbols spell exactly that text
  };

  enum class Join { unknown, yes, no };

  void encode_bytes(std::uint32_t size);
  void encode_incomplete_bytes(std::uint32_t size);
  void encode_characters(std::uint32_t size);
  void byte_part(std::uint32_t begin, std::uint32_t end, bool is_piece);
  void push_symbol(std::uint32_t symbol, std::uint32_t length, std::uint32_t text_begin, bool spelled, Join join);
  void close_part(bool is_piece);
  bool look_up_part(const PieceKey* key, const std::uint8_t* text, std::uint32_t size, std::uint32_t position);
  bool emit_cached(const PieceKey& key, std::uint32_t position, std::uint32_t length);
  void emit(std::uint32_t id, std::uint32_t begin, std::uint32_t end);
  void merge_and_emit(std::uint32_t count, std::uint32_t position, const PieceKey* key);
  std::uint32_t merge_long(std::uint32_t count);

  const Program& program_;
  const bool parts_apart_;  // a part may not use the cache entries of whole pieces
  const std::uint32_t max_piece_;
  PieceCache cache_;

  // Of the running call.
  TokenBuffer* out_ = nullptr;
  const std::uint32_t* origin_ = nullptr;  // of the piece's bytes
  const std::uint8_t* text_ = nullptr;
  const std::uint32_t* mapped_ = nullptr;  // position → byte of the piece, when positions are not bytes
  Part part_;

  Scratch<std::uint32_t> symbols_, ends_, rank_, product_;
  Scratch<std::uint32_t> next_, previous_, mapping_;
  Scratch<std::uint64_t> heap_;
};

}  // namespace toktier
