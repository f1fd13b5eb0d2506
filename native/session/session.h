// A text that grows, and its ids: an append encodes what is new and what stands behind the last cut, an edit begins at the last
// mark before it. The ids are those of the whole text at every step, because they are put together at cuts alone
// (kernels/shared/cuts.h). Core stream: no special tokens of a template, no truncation, no padding. Not here: stores, locks,
// Python.
//
//   text    |----------- final ------------|-- open --|
//   marks   0     m      m      m      m   last cut   end
//
// What is final no append can change: a cut holds whatever comes behind it. What is open is encoded again by the next append; it
// is a few characters long, unless the text has no cut (one letter repeated): then an append costs as much as the text since
// the last one.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>

#include "engine/engine.h"
#include "engine/scratch.h"
#include "session/positions.h"
#include "session/span_encoder.h"

namespace toktier {

// What became of the ids: the first `keep` stay, `ids` come behind them. Valid until the session is used again.
struct TokenPatch {
  std::size_t keep;
  const std::uint32_t* ids;
  std::size_t count;
};

// An edit of text that the session does not hold, or may not begin at: the text before it is needed.
struct NeedsText {
  std::size_t held_from;  // code points
};

class Session {
 public:
  Session(std::shared_ptr<const Program> program, ContextPool& contexts);

  // As another session left off: `final_end` is the last cut, behind which `open_text` and its ids stand. What lies before it is
  // not held. For a session to which nothing happened yet.
  void restore(Position final_end, std::string_view open_text, const std::uint32_t* open_ids, std::size_t n_open_ids);

  // What lies before the held text, once it is known: all of it is held then. `cuts` in it, ascending.
  void adopt(std::string_view text, const std::uint32_t* ids, const Position* cuts, std::size_t n_cuts);

  // An edit is prepared, looked at, and committed or forgotten: prepare() changes nothing that others can see. The text is valid
  // UTF-8, `begin` between two characters; everything from there on becomes `text`. Throws NeedsText, TextError.
  void prepare(Context& context, std::size_t begin_bytes, std::string_view text, unsigned workers);
  TokenPatch patch() const;  // of what was prepared
  void commit();
  void discard();

  // Byte of a code point that the session holds (or the end). Throws NeedsText for one before.
  std::size_t byte_of(std::size_t code_point) const;
  // How many bytes `text` and the held text from `from_bytes` on have in common, whole characters.
  std::size_t common_prefix(std::size_t from_bytes, std::string_view text) const;

  std::size_t tokens() const { return base_.tokens + ids_.size(); }
  std::size_t bytes() const { return base_.bytes + text_.size(); }
  std::size_t code_points() const { return code_points_; }
  const Position& base() const { return base_; }            // what comes before it is not held
  const Position& final_end() const { return open_; }
  std::string_view held_text() const { return {text_.data(), text_.size()}; }
  const std::uint32_t* held_ids() const { return ids_.data(); }
  std::size_t memory() const;

  // Of what was prepared, for a store.
  const Position& prepared_begin() const { return pending_->begin; }
  const Position& prepared_final_end() const { return pending_->open; }
  std::size_t encoded_again() const { return pending_->old_bytes; }  // bytes of old text that had to be
  std::string_view prepared_text() const { return {pending_->text.data(), pending_->text.size()}; }  // from prepared_begin() on
  // All from prepared_begin() on; the open ones stand behind the last of the marks, which are relative to it.
  const Scratch<std::uint32_t>& prepared_ids() const { return pending_->made.ids; }
  const Scratch<Position>& prepared_marks() const { return pending_->made.marks; }

  // Whatever a thread that is no more left half done in prepare() is let go of (not freed: a fork may have cut it anywhere).
  void abandon();

 private:
  struct Pending {
    Position begin, open, end;  // where it begins to differ, its last cut, its end
    std::size_t old_bytes = 0;  // of the text before the edit, from `begin` on
    std::size_t keep = 0;
    Scratch<char> text;         // from `begin` on
    Span made;                  // of it up to the last cut, and the ids of the open text behind them
  };

  const Position& start_for(std::size_t begin_bytes, std::size_t begin_code_points) const;
  const Position& position_before(std::size_t value, std::size_t Position::*count) const;
  template <typename T>
  static void fit(Scratch<T>& data);
  bool begins_with_cut(std::string_view text) const;
  std::size_t last_cut(std::string_view text, std::size_t from) const;

  std::shared_ptr<const Program> program_;
  ContextPool& contexts_;
  Position base_, open_;
  std::size_t code_points_ = 0;
  Scratch<char> text_;           // from base_ on
  Scratch<std::uint32_t> ids_;   // from base_ on, the open ones included
  Scratch<Position> marks_;      // cuts before open_, ascending; the first one is base_
  std::unique_ptr<Pending> pending_;
};

}  // namespace toktier
