// What tests ask of the fake libcuda, and what they tell it (tests/support/fake_cuda.py).
#include <sys/mman.h>

#include <cstring>

#include "fake_cuda.h"

using namespace fake_cuda;

// Memory that an engine of before still has cannot be freed: it may look there. Its pages can be given back.
static void give_back_pages(std::uintptr_t at, std::size_t bytes) {
  const std::uintptr_t page = 4096, begin = (at + page - 1) / page * page, end = (at + bytes) / page * page;
  if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

EXPORT void fake_cuda_reset() {
  for (const auto& [at, bytes] : state->device) give_back_pages(at, bytes);
  for (const auto& [at, bytes] : state->host) give_back_pages(at, bytes);
  for (const auto& [stream, unused] : state->streams) former.insert(stream);
  delete state;
  state = new State;
  current.clear();
}
// The nth call from now on fails, once; nth = 0: every one. `kernel`: the run of a kernel, which a later wait reports.
EXPORT void fake_cuda_fail(const char* name, int nth, int code) {
  Failure& failure = state->failures[name];
  failure.code = code;
  failure.at = nth > 0 ? failure.calls + nth : -1;
  failure.every_from = nth == 0 ? failure.calls + 1 : -1;
}
EXPORT long long fake_cuda_calls(const char* name) { return state->failures[name].calls; }
EXPORT int fake_cuda_set(const char* name, long long value) {
  if (state->knobs.count(name) == 0) return -1;
  state->knobs[name] = value;
  return 0;
}
EXPORT long long fake_cuda_get(const char* name) {
  const std::string what = name;
  if (what == "violations") return state->violations;
  if (what == "foreign_calls") return state->foreign_calls;
  if (what == "launches") return state->launches;
  if (what == "staged") return state->staged;
  if (what == "queued") return static_cast<long long>(queued());
  if (what == "device_bytes") return static_cast<long long>(state->used);
  if (what == "host_bytes") {
    long long sum = 0;
    for (const auto& [at, bytes] : state->host) sum += static_cast<long long>(bytes);
    return sum;
  }
  if (what == "objects") {
    const std::size_t memory = state->device.size() + state->host.size();
    return static_cast<long long>(memory + state->streams.size() + state->events.size() + state->libraries.size());
  }
  if (what == "contexts") return state->contexts;
  return -1;
}
// A stream of the caller of an engine.
EXPORT void* fake_cuda_stream() {
  auto* const stream = new Stream;
  state->of_callers[stream] = 1;
  return stream;
}
// Runs what is queued in a stream, as if somebody had waited for it; null: everywhere.
EXPORT int fake_cuda_settle(void* handle) {
  const std::lock_guard<std::mutex> lock(state->guard);
  return handle == nullptr ? settle_all() : settle(static_cast<Stream*>(handle));
}
EXPORT const char* fake_cuda_report() { return state->report.c_str(); }
// An image that cuLibraryLoadData takes; the number of its bytes.
EXPORT int fake_cuda_image(unsigned char* out, int room) {
  const tt_u32 words[] = TT_ABI_BLOCK;
  const tt_u32 count = TT_ABI_WORDS;
  const int bytes = static_cast<int>(sizeof MAGIC + sizeof count + sizeof words);
  if (room < bytes) return bytes;
  std::memcpy(out, MAGIC, sizeof MAGIC);
  std::memcpy(out + sizeof MAGIC, &count, sizeof count);
  std::memcpy(out + sizeof MAGIC + sizeof count, words, sizeof words);
  return bytes;
}
