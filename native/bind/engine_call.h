// One call of the engine for one Python text: context, scratch, GIL and faults. What encode, count and the lazy views share.
#pragma once
#include "bind/bind.h"
#include "bind/program.h"
#include "bind/text.h"

namespace toktier::bind {

// Reused memory of one thread. A nested call (the interpreter may run other code whenever it allocates) gets its own.
struct CallScratch {
  TextBuffer buffer;
  Result result;
  void trim();  // memory beyond 1 MiB is given back
};

class ScratchLease {
 public:
  ScratchLease();
  ~ScratchLease();
  ScratchLease(const ScratchLease&) = delete;
  ScratchLease& operator=(const ScratchLease&) = delete;
  CallScratch* operator->() const { return scratch_; }
  CallScratch& operator*() const { return *scratch_; }

 private:
  CallScratch* scratch_;
};

// Encodes `text` (of take_text) into scratch.result; `bytes` is the length of its UTF-8. False with a Python error set.
bool encode_text(const ProgramOwner& owner, PyObject* text, const EncodeOptions& options, CallScratch& scratch,
                 std::size_t& bytes);
bool count_text(const ProgramOwner& owner, PyObject* text, const EncodeOptions& options, CallScratch& scratch, std::size_t& bytes,
                std::size_t& count);

}  // namespace toktier::bind
