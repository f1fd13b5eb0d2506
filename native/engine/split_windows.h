// Where pieces begin in a segment, handed out as bitmaps over windows of its bytes, so that whoever works on pieces may add
// bits of its own before bits become positions. The one way to split that encoding uses; BoundaryScan (splitter.h) is its
// oracle, and serves it where a program has no token automaton. What a piece becomes is no business of this file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "lanes/level.h"
#include "program.h"

namespace toktier {

// 4 KiB: classes, bitmaps and text of a window stay in the first-level cache together with the caller's own lists.
constexpr std::uint32_t window_bytes = 4096;
constexpr std::uint32_t window_words = window_bytes / 64;

// Bit k of word k / 64 stands for byte begin + k of the segment. Everything in a window is final. Bits at and beyond `end`
// are 0; words at and beyond words() are not written.
struct SplitWindow {
  std::uint32_t begin, end;  // windows of a segment follow each other without gap; begin is a multiple of window_bytes
  bool ascii;                // every byte is an ASCII character: `lead` is then not written
  bool has_dropped;          // a bit of `dropped` is set; else `dropped` is not written
  alignas(64) std::uint64_t start[window_words];    // a piece starts here; always set at byte 0 of the segment
  alignas(64) std::uint64_t dropped[window_words];  // and that piece is dropped; a subset of `start`
  alignas(64) std::uint64_t lead[window_words];     // a character begins here
  bool drops(std::uint32_t k) const { return has_dropped && (dropped[k / 64] >> (k % 64) & 1) != 0; }
  std::uint32_t words() const { return (end - begin + 63) / 64; }
};

// One segment at a time; no allocation, but for programs without token automaton (a byte a character, as BoundaryScan).
class WindowSplitter {
 public:
  WindowSplitter(const Program& program, Level level);
  ~WindowSplitter();
  WindowSplitter(const WindowSplitter&) = delete;
  WindowSplitter& operator=(const WindowSplitter&) = delete;

  // `text` stays where it is until the last window. Nothing outside [text, text + size) is read.
  void begin(const std::uint8_t* text, std::uint32_t size);
  // The next window, until it says false: a segment of n bytes has ceil(n / window_bytes) windows.
  bool next(SplitWindow& window);

  std::size_t bytes() const;  // of memory that release() gives back
  void release();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Positions base + k of the set bits k of words[0, count), ascending; returns how many. `out` must have room for them and for
// 16 more, which may be written to with anything.
std::uint32_t list_bits(Level level, const std::uint64_t* words, std::uint32_t count, std::uint32_t base, std::uint32_t* out);

}  // namespace toktier
