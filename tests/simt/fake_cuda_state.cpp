// Memory, streams and failures of the fake libcuda.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>

#include "fake_cuda.h"

namespace fake_cuda {

namespace {

constexpr std::size_t GUARD = 256;  // bytes on either side
constexpr unsigned char GUARD_BYTE = 0xA5, FRESH = 0xCB, GONE = 0xDD;

}  // namespace

State::State() {
  const char* const told = std::getenv("FAKE_CUDA");
  std::istringstream knobs_told(told == nullptr ? "" : told);
  for (std::string knob; knobs_told >> knob;) {
    const std::size_t equals = knob.find('=');
    knobs.at(knob.substr(0, equals)) = std::stoll(knob.substr(equals + 1));
  }
}

State* state = new State;
std::set<Stream*> former;
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

Result settle(Stream* stream, const Mark* until) {
  while (!stream->queue.empty()) {
    const Operation& operation = stream->queue.front();
    if (operation.awaited != nullptr && !operation.awaited->happened)
      if (settle(operation.awaited->stream, operation.awaited.get()) == NOT_READY) return NOT_READY;
    if (state->lost == SUCCESS && operation.run) {
      const Result result = operation.run();
      if (result == NOT_READY) return NOT_READY;
      if (result != SUCCESS) state->lost = result;
    }
    const std::shared_ptr<Mark> recorded = operation.recorded;
    stream->queue.pop_front();
    if (recorded == nullptr) continue;
    recorded->happened = true;
    recorded->at = std::chrono::steady_clock::now();
    if (recorded.get() == until) break;
  }
  return state->lost;
}
Result settle_all() {
  Result result = state->lost;
  const auto run = [&](Stream* stream) {
    if (settle(stream) == NOT_READY) result = NOT_READY;
  };
  for (const auto& [stream, unused] : state->streams) run(stream);
  for (const auto& [stream, unused] : state->of_callers) run(stream);
  for (Stream& stream : state->defaults) run(&stream);
  return result;
}
std::size_t queued() {
  std::size_t sum = 0;
  for (const auto& [stream, unused] : state->streams) sum += stream->queue.size();
  for (const auto& [stream, unused] : state->of_callers) sum += stream->queue.size();
  for (const Stream& stream : state->defaults) sum += stream.queue.size();
  return sum;
}
Result waited(Result result) {
  if (result != NOT_READY) return SUCCESS;
  while (knob("hang_blocks") != 0) sleep(1);
  return violation("a call waits for a kernel that hangs", LAUNCH_TIMEOUT);
}

Stream* living(Stream* handle) {
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  if (number < std::size(state->defaults)) return &state->defaults[number];
  return state->streams.count(handle) + state->of_callers.count(handle) != 0 ? handle : nullptr;
}
Result enqueue(Stream* handle, Operation operation) {
  Stream* const stream = living(handle);
  if (stream == nullptr) return violation("a stream that does not live", INVALID_HANDLE);
  if (operation.recorded != nullptr) operation.recorded->stream = stream;
  stream->queue.push_back(std::move(operation));
  return SUCCESS;
}

}  // namespace fake_cuda
