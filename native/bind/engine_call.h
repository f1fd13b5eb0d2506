// One call of the engine for one Python text: context, memory, GIL and faults. What encode, count and the lazy views share.
#pragma once
#include <memory>
#include <optional>

#include "bind/bind.h"
#include "bind/program.h"
#include "bind/text.h"

namespace toktier::bind {

// What one running call needs and the next one takes over.
struct Caller {
  explicit Caller(ContextPool::Lease lease) : context(std::move(lease)) {}
  ContextPool::Lease context;
  TextBuffer buffer;
  Result result;
  const void* thread = nullptr;  // that had it last
  void trim();                   // memory beyond 1 MiB is given back
};

// The callers of one program while no call has them, so that a call pays for none of it. Touched with the GIL held only. A thread
// gets the one back whose caches it filled, as long as it is here.
class IdleCallers {
 public:
  std::unique_ptr<Caller> take();  // null: none is left
  void give(std::unique_ptr<Caller> caller);

 private:
  static constexpr std::size_t most = 16;
  std::unique_ptr<Caller> callers_[most];
  std::size_t count_ = 0;
};

// A caller for a scope that begins and ends with the GIL held. A nested call (the interpreter may run other code whenever it
// allocates) gets its own.
class CallerLease {
 public:
  explicit CallerLease(const ProgramOwner& owner)
      : idle_(owner.idle_callers()), caller_(idle_.take()) {
    if (caller_ == nullptr) caller_ = std::make_unique<Caller>(owner.contexts().acquire());
  }
  ~CallerLease() {
    caller_->trim();
    idle_.give(std::move(caller_));
  }
  CallerLease(const CallerLease&) = delete;
  CallerLease& operator=(const CallerLease&) = delete;
  Caller* operator->() const { return caller_.get(); }
  Caller& operator*() const { return *caller_; }

 private:
  IdleCallers& idle_;
  std::unique_ptr<Caller> caller_;
};

// Encodes `text` (of take_text) as far as Context::prepare does, or counts only; `bytes` is the length of its UTF-8, `ids` how
// many there are. False with a Python error set. What was prepared is to be had from caller.context->write().
bool prepare_text(const ProgramOwner& owner, PyObject* text, const EncodeOptions& options, Caller& caller, std::size_t& bytes,
                  std::size_t& ids);
bool count_text(const ProgramOwner& owner, PyObject* text, const EncodeOptions& options, Caller& caller, std::size_t& bytes,
                std::size_t& ids);
// The same into caller.result, with what `options` ask for beside ids.
bool encode_text(const ProgramOwner& owner, PyObject* text, const EncodeOptions& options, Caller& caller, std::size_t& bytes);

}  // namespace toktier::bind
