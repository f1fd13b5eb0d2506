// Runs the engine on one Python text.
#include "bind/engine_call.h"

#include "bind/errors.h"

namespace toktier::bind {

namespace {

constexpr std::size_t kKeepElements = (std::size_t(1) << 20) / sizeof(std::uint32_t);

// The scratch of this thread while no call has it. The pointer needs no construction, so that reading it costs nothing; its owner
// is made once a thread, when there is something to free at the thread's end.
thread_local CallScratch* idle_scratch = nullptr;
struct IdleScratchOwner {
  bool alive = true;
  ~IdleScratchOwner() { delete std::exchange(idle_scratch, nullptr); }
};

template <typename Run>
bool run(const ProgramOwner& owner, PyObject* text, CallScratch& scratch, std::size_t& bytes, Run&& engine) {
  TextFault fault{};
  bool valid = false;
  try {
    WithoutGil released(text_weight(text) >= kReleaseGilFrom);
    std::string_view utf8;
    valid = utf8_of(text, scratch.buffer, utf8, fault);
    if (valid) {
      bytes = utf8.size();
      const ContextPool::Lease context = owner.contexts().acquire();
      engine(*context, utf8);
    }
  } catch (...) {
    set_from_current_exception();
    return false;
  }
  if (!valid) set_invalid_text(fault);
  return valid;
}

}  // namespace

void CallScratch::trim() {
  buffer.trim();
  if (result.ids.capacity() > kKeepElements) std::vector<std::uint32_t>().swap(result.ids);
  if (result.offsets.capacity() > kKeepElements) std::vector<Offset>().swap(result.offsets);
  if (!result.surfaces.empty()) std::vector<Surface>().swap(result.surfaces);
}

ScratchLease::ScratchLease() : scratch_(std::exchange(idle_scratch, nullptr)) {
  if (scratch_ != nullptr) return;
  static thread_local IdleScratchOwner owner;
  scratch_ = new CallScratch;
}

ScratchLease::~ScratchLease() {
  scratch_->trim();
  delete std::exchange(idle_scratch, scratch_);
}

bool encode_text(const ProgramOwner& owner, PyObject* text, const EncodeOptions& options, CallScratch& scratch,
                 std::size_t& bytes) {
  return run(owner, text, scratch, bytes,
             [&](Context& context, std::string_view utf8) { context.encode(utf8, options, scratch.result); });
}

bool count_text(const ProgramOwner& owner, PyObject* text, const EncodeOptions& options, CallScratch& scratch, std::size_t& bytes,
                std::size_t& count) {
  return run(owner, text, scratch, bytes, [&](Context& context, std::string_view utf8) { count = context.count(utf8, options); });
}

}  // namespace toktier::bind
