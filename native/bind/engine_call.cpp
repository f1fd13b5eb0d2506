// Runs the engine on one Python text.
#include "bind/engine_call.h"

#include "bind/errors.h"

namespace toktier::bind {

namespace {

constexpr std::size_t kKeepElements = (std::size_t(1) << 20) / sizeof(std::uint32_t);

template <typename Run>
bool run(const ProgramOwner& owner, PyObject* text, Caller& caller, std::size_t& bytes, Run&& engine) {
  TextFault fault{};
  bool valid = false;
  try {
    WithoutGil released(text_weight(text) >= kReleaseGilFrom);
    std::string_view utf8;
    valid = utf8_of(text, owner.transcode(), caller.buffer, utf8, fault);
    if (valid) {
      bytes = utf8.size();
      engine(utf8);
    }
  } catch (...) {
    set_from_current_exception();
    return false;
  }
  if (!valid) set_invalid_text(fault);
  return valid;
}

}  // namespace

void Caller::trim() {
  buffer.trim();
  if (result.ids.capacity() > kKeepElements) std::vector<std::uint32_t>().swap(result.ids);
  if (result.offsets.capacity() > kKeepElements) std::vector<Offset>().swap(result.offsets);
  if (!result.surfaces.empty()) std::vector<Surface>().swap(result.surfaces);
}

std::unique_ptr<Caller> IdleCallers::take() {
  if (count_ == 0) return nullptr;
  std::unique_ptr<Caller>& last = callers_[--count_];
  if (count_ != 0) {
    const void* const thread = __builtin_thread_pointer();
    for (std::size_t i = 0; i < count_ && last->thread != thread; ++i)
      if (callers_[i]->thread == thread) callers_[i].swap(last);
  }
  return std::move(last);
}

void IdleCallers::give(std::unique_ptr<Caller> caller) {
  if (count_ == most) return;
  caller->thread = __builtin_thread_pointer();
  callers_[count_++] = std::move(caller);
}

bool prepare_text(const ProgramOwner& owner, PyObject* text, const EncodeOptions& options, Caller& caller, std::size_t& bytes,
                  std::size_t& ids) {
  return run(owner, text, caller, bytes, [&](std::string_view utf8) { ids = caller.context->prepare(utf8, options); });
}

bool count_text(const ProgramOwner& owner, PyObject* text, const EncodeOptions& options, Caller& caller, std::size_t& bytes,
                std::size_t& ids) {
  return run(owner, text, caller, bytes, [&](std::string_view utf8) { ids = caller.context->count(utf8, options); });
}

bool encode_text(const ProgramOwner& owner, PyObject* text, const EncodeOptions& options, Caller& caller, std::size_t& bytes) {
  return run(owner, text, caller, bytes, [&](std::string_view utf8) { caller.context->encode(utf8, options, caller.result); });
}

}  // namespace toktier::bind
