// Memory, streams and failures of the fake libcuda.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "fake_cuda.h"

namespace fake_cuda {

namespace {

constexpr std::size_t GUARD = 256;  // bytes on either side
constexpr unsigned char GUARD_BYTE = 0xA5, FRESH = 0xCB, GONE = 0xDD;

}  // namespace

State* state = new State;
thread_local std::vector<int> current;

Result violation(const std::string& what, Result result) {
  if (state->report.empty()) state->report = what;
  ++state->violations;
  return result;
}

static bool is_fault(Result r) {
  return r == ILLEGAL_ADDRESS || r == LAUNCH_FAILED || r == LAUNCH_TIMEOUT || r == UNKNOWN || r == DEVICE_UNAVAILABLE;
}

Result begin(const char* name, Needs needs, std::unique_lock<std::mutex>& lock) {
  if (state->process == 0) state->process = getpid();
  if (state->process != getpid()) return ++state->foreign_calls, NOT_INITIALIZED;  // a fork: the lock may be taken for ever
  lock = std::unique_lock<std::mutex>(state->guard);
  Failure& failure = state->failures[name];
  const long long n = ++failure.calls;
  if (n == failure.at || (failure.every_from >= 0 && n >= failure.every_from)) {
    if (is_fault(failure.code)) state->lost = failure.code;
    return failure.code;
  }
  if (needs == NOTHING) return SUCCESS;
  if (state->lost != SUCCESS) return state->lost;
  return current.empty() ? violation(std::string(name) + " without a current context", INVALID_CONTEXT) : SUCCESS;
}

static bool guards_hold(Pointer at, std::size_t bytes) {
  const auto* const begin = reinterpret_cast<const unsigned char*>(at);
  for (std::size_t i = 1; i <= GUARD; ++i)
    if (begin[-static_cast<std::ptrdiff_t>(i)] != GUARD_BYTE || begin[bytes + i - 1] != GUARD_BYTE) return false;
  return true;
}

Pointer allocate(std::size_t bytes) {
  const std::size_t room = (GUARD + bytes + GUARD + 255) / 256 * 256;
  auto* const memory = static_cast<unsigned char*>(std::aligned_alloc(256, room));
  std::memset(memory, GUARD_BYTE, room);
  std::memset(memory + GUARD, FRESH, bytes);
  return reinterpret_cast<Pointer>(memory + GUARD);
}

void release(Pointer at, std::size_t bytes) {
  if (!guards_hold(at, bytes)) violation("a kernel or a copy wrote beyond its memory");
  std::memset(reinterpret_cast<void*>(at), GONE, bytes);
  std::free(reinterpret_cast<unsigned char*>(at) - GUARD);
}

template <typename Key>
static bool inside(const std::map<Key, std::size_t>& memory, Key at, std::size_t bytes) {
  auto next = memory.upper_bound(at);
  if (next == memory.begin()) return false;
  --next;
  return at + bytes <= next->first + next->second;
}

bool on_device(Pointer at, std::size_t bytes) { return inside(state->device, at, bytes); }
bool page_locked(const void* at, std::size_t bytes) { return inside(state->host, reinterpret_cast<std::uintptr_t>(at), bytes); }

Result settle(Stream* stream, const Event* until) {
  while (!stream->queue.empty()) {
    const Operation operation = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (state->lost == SUCCESS && operation.run) {
      const Result result = operation.run();
      if (result != SUCCESS) state->lost = result;
    }
    if (operation.recorded != nullptr) {
      operation.recorded->happened = true;
      operation.recorded->stream = nullptr;
      operation.recorded->at = std::chrono::steady_clock::now();
      if (operation.recorded == until) break;
    }
  }
  return state->lost;
}
void settle_all() {
  for (const auto& [stream, unused] : state->streams) settle(stream);
}

Result enqueue(Stream* stream, std::function<Result()> run) {
  if (state->streams.count(stream) == 0) return violation("a stream that does not live", INVALID_HANDLE);
  stream->queue.push_back({std::move(run), nullptr});
  return SUCCESS;
}

}  // namespace fake_cuda
