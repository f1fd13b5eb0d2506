// The normalizer of a program, applied to one segment: operations in order, each rewriting only the places that change. A
// segment that nothing changes is handed back as it came, without a copy.
#pragma once
#include "lanes/scan_lanes.h"
#include "program.h"
#include "segment.h"

namespace toktier {

// One operation's output: unchanged stretches are copied when the first change is known, not before.
class Rewriter {
 public:
  Rewriter(const Segment& in, SegmentBuffer& out) : in_(in), out_(out) {}
  bool changed() const { return changed_; }
  // Replaces in[begin, end) by text whose every byte comes from `origin`; begin is not before the last end.
  void replace(std::uint32_t begin, std::uint32_t end, const std::uint8_t* text, std::uint32_t size, std::uint32_t origin);
  // The same for several origins, byte by byte.
  void replace(std::uint32_t begin, std::uint32_t end, const std::uint8_t* text, std::uint32_t size,
               const std::uint32_t* origins);
  // All of the input at once, without origins: room for `size` bytes, to be filled by the caller.
  std::uint8_t* replace_all(std::size_t size);
  Segment finish();

 private:
  void keep_until(std::uint32_t position);
  const Segment& in_;
  SegmentBuffer& out_;
  std::uint32_t copied_ = 0;
  bool changed_ = false;
};

struct FormScratch {
  struct Item {
    std::uint32_t cp;
    std::int32_t change;  // 1: inserted, 0: replaces one character, -n: replaces one and removes the n after it
    std::uint8_t combining_class;
    bool is_second;       // of some composition
  };
  Scratch<Item> items, sorted;
  Scratch<std::uint32_t> positions;  // of the characters of the window
  SegmentBuffer rewritten;
};

class NormalizerRun {
 public:
  // The result is the segment itself or in this object, until the next call. By reference: a segment that is copied right after
  // it was made waits for its parts to be written.
  // `continued`: nothing is put in front of it.
  const Segment& run(const Program& program, const ScanLanes& lanes, const Segment& segment, bool continued);
  std::size_t bytes() const;
  void release();

 private:
  SegmentBuffer buffers_[2];
  FormScratch form_;
  Segment result_{};
};

// NFC, NFKC, NFD or NFKD in place of `segment`, around its characters that are not inert (native/engine/unicode_form.cpp).
void rewrite_form(const Program& program, const ScanLanes& lanes, bool compose, const Segment& segment, FormScratch& scratch,
                  Rewriter& out);

}  // namespace toktier
