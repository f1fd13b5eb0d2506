// libcuda as the host engine sees it: every driver call that native/gpu makes, with kernels run by the emulator. Device memory is
// memory of this process between guards, poisoned when it comes and when it goes. A stream keeps what is queued until somebody
// waits, so that a result which is read too early is not there. fake_cuda_fail makes a call fail, fake_cuda_set changes the device.
// Whatever a driver would leave undefined is counted (`violations`) with a sentence. Not here: anything of a device's speed.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "abi.h"
#include "launch.h"

namespace {

using Result = int;
using Pointer = unsigned long long;
constexpr Result SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, DEVICE_UNAVAILABLE = 46, NO_DEVICE = 100,
                 INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, INVALID_HANDLE = 400,
                 NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, LAUNCH_TIMEOUT = 702, LAUNCH_FAILED = 719, UNKNOWN = 999;

const std::map<Result, const char*> error_names = {
    {SUCCESS, "CUDA_SUCCESS"}, {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"}, {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"}, {NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"}, {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"}, {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"}, {UNKNOWN, "CUDA_ERROR_UNKNOWN"}};

constexpr char MAGIC[8] = {'T', 'T', 'F', 'A', 'K', 'E', '1', '\n'};  // of an image; then how many words of tt_abi, and the words
constexpr std::size_t GUARD = 256;
constexpr unsigned char GUARD_BYTE = 0xA5, FRESH = 0xCB, GONE = 0xDD;

struct Device;
struct Library {
  std::vector<tt_u32> abi;
};
struct Event;
struct Operation {
  std::function<Result()> run;
  Event* recorded;
};
struct Stream {
  std::deque<Operation> queue;
};
struct Event {
  Stream* stream = nullptr;  // in which it is queued, while it is
  bool happened = false;
  std::chrono::steady_clock::time_point at;
};
struct Failure {
  long long calls = 0, at = -1, every_from = -1;
  Result code = SUCCESS;
};

struct Fake {
  std::mutex guard;
  pid_t process = 0;
  std::map<std::string, long long> knobs;
  std::map<std::string, Failure> failures;
  std::string report;
  long long violations = 0, launches = 0, foreign_calls = 0;
  Result lost = SUCCESS;  // after a fault of the device every call gives it
  long long contexts = 0;  // references to the primary one
  std::map<Pointer, std::size_t> device;  // live memory
  std::map<std::uintptr_t, std::size_t> host;
  std::map<Stream*, int> streams;
  std::map<Event*, int> events;
  std::map<Library*, int> libraries;
  std::size_t used = 0;
};
Fake* fake = new Fake;
thread_local std::vector<int> current;  // contexts of this thread
int the_context;                        // its address is the handle

long long knob(const char* name) { return fake->knobs.at(name); }

void reset_knobs() {
  fake->knobs = {{"driver_version", 13000}, {"devices", 1},          {"major", 9},       {"minor", 0},
                 {"multiprocessors", 2},    {"blocks_each", 1},      {"local_bytes", 0}, {"free_memory", 1ll << 30},
                 {"seed", 1},               {"resident_blocks", 2},  {"by_name", 1},        {"idle_kernels", 0}};
}

Result violation(const std::string& what, Result result = INVALID_VALUE) {
  if (fake->report.empty()) fake->report = what;
  ++fake->violations;
  return result;
}

bool is_fault(Result r) {
  return r == ILLEGAL_ADDRESS || r == LAUNCH_FAILED || r == LAUNCH_TIMEOUT || r == UNKNOWN || r == DEVICE_UNAVAILABLE;
}

enum Needs { NOTHING, A_CONTEXT };

template <typename Body>
Result call(const char* name, Needs needs, Body&& body) {
  if (fake->process == 0) fake->process = getpid();
  if (fake->process != getpid()) return ++fake->foreign_calls, NOT_INITIALIZED;  // a fork: the lock may be taken for ever
  const std::lock_guard<std::mutex> lock(fake->guard);
  Failure& failure = fake->failures[name];
  const long long n = ++failure.calls;
  if (n == failure.at || (failure.every_from >= 0 && n >= failure.every_from)) {
    if (is_fault(failure.code)) fake->lost = failure.code;
    return failure.code;
  }
  if (needs == A_CONTEXT) {
    if (fake->lost != SUCCESS) return fake->lost;
    if (current.empty()) return violation(std::string(name) + " without a current context", INVALID_CONTEXT);
  }
  return body();
}

bool guards_hold(Pointer at, std::size_t bytes) {
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
bool inside(const std::map<Key, std::size_t>& memory, Key at, std::size_t bytes) {
  auto next = memory.upper_bound(at);
  if (next == memory.begin()) return false;
  --next;
  return at + bytes <= next->first + next->second;
}
bool on_device(Pointer at, std::size_t bytes) { return inside(fake->device, at, bytes); }
bool page_locked(const void* at, std::size_t bytes) { return inside(fake->host, reinterpret_cast<std::uintptr_t>(at), bytes); }

// Runs what is queued, up to and with the event where one is given.
Result settle(Stream* stream, const Event* until = nullptr) {
  while (!stream->queue.empty()) {
    const Operation operation = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (fake->lost == SUCCESS && operation.run) {
      const Result result = operation.run();
      if (result != SUCCESS) fake->lost = result;
    }
    if (operation.recorded != nullptr) {
      operation.recorded->happened = true;
      operation.recorded->stream = nullptr;
      operation.recorded->at = std::chrono::steady_clock::now();
      if (operation.recorded == until) break;
    }
  }
  return fake->lost;
}
void settle_all() {
  for (const auto& [stream, unused] : fake->streams) settle(stream);
}

Result enqueue(Stream* stream, std::function<Result()> run) {
  if (fake->streams.count(stream) == 0) return violation("a stream that does not live", INVALID_HANDLE);
  stream->queue.push_back({std::move(run), nullptr});
  return SUCCESS;
}

Result run_kernel(const SimtKernel* kernel, unsigned blocks, unsigned threads, const TtGpuParams& params) {
  Failure& failure = fake->failures["kernel"];
  const long long n = ++failure.calls;
  if (n == failure.at) return failure.code;
  if (knob("idle_kernels") != 0) return SUCCESS;
  SimtOptions options;
  options.seed = static_cast<std::uint64_t>(knob("seed")) + static_cast<std::uint64_t>(fake->launches++);
  options.resident_blocks = static_cast<std::uint32_t>(knob("resident_blocks"));
  char report[400] = "";
  if (simt_launch(*kernel, blocks, threads, params, options, report, sizeof report) == SIMT_OK) return SUCCESS;
  return violation(report, LAUNCH_FAILED);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// What tests call.
EXPORT void fake_cuda_reset() {
  if (fake->process != 0 && fake->process != getpid()) return;
  delete fake;
  fake = new Fake;
  current.clear();
  reset_knobs();
}
// The nth call from now on fails, once; nth = 0: every one. `kernel`: the run of a kernel, which a later wait reports.
EXPORT void fake_cuda_fail(const char* name, int nth, int code) {
  Failure& failure = fake->failures[name];
  failure.code = code;
  failure.at = nth > 0 ? failure.calls + nth : -1;
  failure.every_from = nth == 0 ? failure.calls + 1 : -1;
}
EXPORT long long fake_cuda_calls(const char* name) { return fake->failures[name].calls; }
EXPORT int fake_cuda_set(const char* name, long long value) {
  if (fake->knobs.count(name) == 0) return -1;
  fake->knobs[name] = value;
  return 0;
}
EXPORT long long fake_cuda_get(const char* name) {
  const std::string what = name;
  if (what == "violations") return fake->violations;
  if (what == "foreign_calls") return fake->foreign_calls;
  if (what == "launches") return fake->launches;
  if (what == "device_bytes") return static_cast<long long>(fake->used);
  if (what == "host_bytes") {
    long long sum = 0;
    for (const auto& [at, bytes] : fake->host) sum += static_cast<long long>(bytes);
    return sum;
  }
  if (what == "objects") return static_cast<long long>(fake->device.size() + fake->host.size() + fake->streams.size() + fake->events.size() + fake->libraries.size());
  if (what == "contexts") return fake->contexts;
  return -1;
}
EXPORT const char* fake_cuda_report() { return fake->report.c_str(); }
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

EXPORT Result cuGetErrorName(Result code, const char** name) {
  const auto found = error_names.find(code);
  if (found == error_names.end()) return INVALID_VALUE;
  *name = found->second;
  return SUCCESS;
}
EXPORT Result cuDriverGetVersion(int* version) {
  return call("cuDriverGetVersion", NOTHING, [&] { return *version = static_cast<int>(knob("driver_version")), SUCCESS; });
}
EXPORT Result cuInit(unsigned flags) {
  return call("cuInit", NOTHING, [&] { return flags != 0 ? INVALID_VALUE : knob("devices") == 0 ? NO_DEVICE : SUCCESS; });
}
EXPORT Result cuDeviceGetCount(int* count) {
  return call("cuDeviceGetCount", NOTHING, [&] { return *count = static_cast<int>(knob("devices")), SUCCESS; });
}
EXPORT Result cuDeviceGet(int* device, int ordinal) {
  return call("cuDeviceGet", NOTHING, [&] {
    if (ordinal < 0 || ordinal >= knob("devices")) return INVALID_DEVICE;
    return *device = ordinal, SUCCESS;
  });
}
EXPORT Result cuDeviceGetName(char* name, int room, int) {
  return call("cuDeviceGetName", NOTHING, [&] {
    std::strncpy(name, "Fake device", static_cast<std::size_t>(room));
    return SUCCESS;
  });
}
EXPORT Result cuDeviceGetAttribute(int* value, int attribute, int) {
  return call("cuDeviceGetAttribute", NOTHING, [&] {
    const char* const name = attribute == 16 ? "multiprocessors" : attribute == 75 ? "major" : attribute == 76 ? "minor" : nullptr;
    if (name == nullptr) return violation("an attribute of devices that is not known here");
    return *value = static_cast<int>(knob(name)), SUCCESS;
  });
}
EXPORT Result cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  return call("cuDeviceTotalMem", NOTHING, [&] { return *bytes = static_cast<std::size_t>(knob("free_memory")), SUCCESS; });
}
EXPORT Result cuDevicePrimaryCtxRetain(void** context, int) {
  return call("cuDevicePrimaryCtxRetain", NOTHING, [&] {
    ++fake->contexts;
    return *context = &the_context, SUCCESS;
  });
}
EXPORT Result cuDevicePrimaryCtxRelease_v2(int) {
  return call("cuDevicePrimaryCtxRelease", NOTHING, [&] {
    if (fake->contexts == 0) return violation("the primary context is released once too often", INVALID_CONTEXT);
    return --fake->contexts, SUCCESS;
  });
}
EXPORT Result cuCtxPushCurrent_v2(void* context) {
  return call("cuCtxPushCurrent", NOTHING, [&] {
    if (context != &the_context || fake->contexts == 0) return violation("a context that does not live", INVALID_CONTEXT);
    return current.push_back(0), SUCCESS;
  });
}
EXPORT Result cuCtxPopCurrent_v2(void** context) {
  return call("cuCtxPopCurrent", NOTHING, [&] {
    if (current.empty()) return violation("no context is there to pop", INVALID_CONTEXT);
    current.pop_back();
    return *context = &the_context, SUCCESS;
  });
}
EXPORT Result cuLibraryLoadData(Library** library, const void* image, void*, void**, unsigned, void*, void**, unsigned) {
  return call("cuLibraryLoadData", NOTHING, [&] {
    if (std::memcmp(image, MAGIC, sizeof MAGIC) != 0) return NO_BINARY_FOR_GPU;
    tt_u32 count;
    std::memcpy(&count, static_cast<const char*>(image) + sizeof MAGIC, sizeof count);
    *library = new Library{std::vector<tt_u32>(count)};
    std::memcpy((*library)->abi.data(), static_cast<const char*>(image) + sizeof MAGIC + sizeof count, count * sizeof(tt_u32));
    fake->libraries[*library] = 1;
    // Its variables lie on the device, and a copy of them is a copy from there.
    fake->device[reinterpret_cast<Pointer>((*library)->abi.data())] = count * sizeof(tt_u32);
    return SUCCESS;
  });
}
EXPORT Result cuLibraryUnload(Library* library) {
  return call("cuLibraryUnload", A_CONTEXT, [&] {
    if (fake->libraries.erase(library) == 0) return violation("a library that is not loaded", INVALID_HANDLE);
    settle_all();
    fake->device.erase(reinterpret_cast<Pointer>(library->abi.data()));
    delete library;
    return SUCCESS;
  });
}
EXPORT Result cuLibraryGetKernel(const SimtKernel** kernel, Library* library, const char* name) {
  return call("cuLibraryGetKernel", NOTHING, [&] {
    if (fake->libraries.count(library) == 0) return violation("a library that is not loaded", INVALID_HANDLE);
    *kernel = simt_kernel(name);
    return *kernel == nullptr ? NOT_FOUND : SUCCESS;
  });
}
EXPORT Result cuLibraryGetGlobal(Pointer* at, std::size_t* bytes, Library* library, const char* name) {
  return call("cuLibraryGetGlobal", A_CONTEXT, [&] {
    if (std::strcmp(name, "tt_abi") != 0 || library->abi.empty()) return NOT_FOUND;
    *at = reinterpret_cast<Pointer>(library->abi.data());
    return *bytes = library->abi.size() * sizeof(tt_u32), SUCCESS;
  });
}
EXPORT Result cuKernelGetAttribute(int* value, int attribute, const SimtKernel*, int) {
  return call("cuKernelGetAttribute", NOTHING, [&] {
    if (attribute != 1 && attribute != 3 && attribute != 4) return violation("an attribute of kernels that is not known here");
    return *value = attribute == 1 ? 1024 : attribute == 3 ? static_cast<int>(knob("local_bytes")) : 32, SUCCESS;
  });
}
EXPORT Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const SimtKernel*, int, std::size_t) {
  return call("cuOccupancyMaxActiveBlocksPerMultiprocessor", A_CONTEXT,
              [&] { return *blocks = static_cast<int>(knob("blocks_each")), SUCCESS; });
}
EXPORT Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return call("cuMemGetInfo", A_CONTEXT, [&] {
    *total = static_cast<std::size_t>(knob("free_memory"));
    return *free = *total - fake->used, SUCCESS;
  });
}
EXPORT Result cuMemAlloc_v2(Pointer* at, std::size_t bytes) {
  return call("cuMemAlloc", A_CONTEXT, [&] {
    if (bytes == 0) return violation("an allocation of nothing");
    if (fake->used + bytes > static_cast<std::size_t>(knob("free_memory"))) return OUT_OF_MEMORY;
    *at = allocate(bytes);
    fake->device[*at] = bytes;
    return fake->used += bytes, SUCCESS;
  });
}
EXPORT Result cuMemFree_v2(Pointer at) {
  return call("cuMemFree", A_CONTEXT, [&] {
    const auto found = fake->device.find(at);
    if (found == fake->device.end()) return violation("device memory that does not live is freed");
    settle_all();
    release(at, found->second);
    fake->used -= found->second;
    return fake->device.erase(found), SUCCESS;
  });
}
EXPORT Result cuMemHostAlloc(void** at, std::size_t bytes, unsigned) {
  return call("cuMemHostAlloc", A_CONTEXT, [&] {
    const Pointer memory = allocate(bytes);
    fake->host[static_cast<std::uintptr_t>(memory)] = bytes;
    return *at = reinterpret_cast<void*>(memory), SUCCESS;
  });
}
EXPORT Result cuMemFreeHost(void* at) {
  return call("cuMemFreeHost", A_CONTEXT, [&] {
    const auto found = fake->host.find(reinterpret_cast<std::uintptr_t>(at));
    if (found == fake->host.end()) return violation("page-locked memory that does not live is freed");
    settle_all();
    release(reinterpret_cast<Pointer>(at), found->second);
    return fake->host.erase(found), SUCCESS;
  });
}
EXPORT Result cuMemcpyHtoD_v2(Pointer to, const void* from, std::size_t bytes) {
  return call("cuMemcpyHtoD", A_CONTEXT, [&] {
    if (!on_device(to, bytes)) return violation("a copy to no device memory");
    return std::memcpy(reinterpret_cast<void*>(to), from, bytes), SUCCESS;
  });
}
EXPORT Result cuMemcpyDtoH_v2(void* to, Pointer from, std::size_t bytes) {
  return call("cuMemcpyDtoH", A_CONTEXT, [&] {
    if (!on_device(from, bytes)) return violation("a copy from no device memory");
    return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), SUCCESS;
  });
}
EXPORT Result cuMemcpyHtoDAsync_v2(Pointer to, const void* from, std::size_t bytes, Stream* stream) {
  return call("cuMemcpyHtoDAsync", A_CONTEXT, [&] {
    if (!page_locked(from, bytes)) return violation("an asynchronous copy from memory that is not page-locked");
    return enqueue(stream, [=] {
      if (!on_device(to, bytes) || !page_locked(from, bytes)) return violation("a copy to no device memory", ILLEGAL_ADDRESS);
      return std::memcpy(reinterpret_cast<void*>(to), from, bytes), SUCCESS;
    });
  });
}
EXPORT Result cuMemcpyDtoHAsync_v2(void* to, Pointer from, std::size_t bytes, Stream* stream) {
  return call("cuMemcpyDtoHAsync", A_CONTEXT, [&] {
    if (!page_locked(to, bytes)) return violation("an asynchronous copy to memory that is not page-locked");
    return enqueue(stream, [=] {
      if (!on_device(from, bytes) || !page_locked(to, bytes)) return violation("a copy from no device memory", ILLEGAL_ADDRESS);
      return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), SUCCESS;
    });
  });
}
EXPORT Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, std::size_t bytes, Stream* stream) {
  return call("cuMemcpyDtoDAsync", A_CONTEXT, [&] {
    return enqueue(stream, [=] {
      if (!on_device(from, bytes) || !on_device(to, bytes)) return violation("a copy within no device memory", ILLEGAL_ADDRESS);
      return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes), SUCCESS;
    });
  });
}
EXPORT Result cuMemsetD8Async(Pointer to, unsigned char value, std::size_t bytes, Stream* stream) {
  return call("cuMemsetD8Async", A_CONTEXT, [&] {
    return enqueue(stream, [=] {
      if (!on_device(to, bytes)) return violation("no device memory is set", ILLEGAL_ADDRESS);
      return std::memset(reinterpret_cast<void*>(to), value, bytes), SUCCESS;
    });
  });
}
EXPORT Result cuStreamCreate(Stream** stream, unsigned) {
  return call("cuStreamCreate", A_CONTEXT, [&] { return *stream = new Stream, fake->streams[*stream] = 1, SUCCESS; });
}
EXPORT Result cuStreamDestroy_v2(Stream* stream) {
  return call("cuStreamDestroy", A_CONTEXT, [&] {
    if (fake->streams.count(stream) == 0) return violation("a stream that does not live", INVALID_HANDLE);
    settle(stream);
    fake->streams.erase(stream);
    return delete stream, SUCCESS;
  });
}
EXPORT Result cuStreamSynchronize(Stream* stream) {
  return call("cuStreamSynchronize", A_CONTEXT, [&] {
    return fake->streams.count(stream) == 0 ? violation("a stream that does not live", INVALID_HANDLE) : settle(stream);
  });
}
EXPORT Result cuEventCreate(Event** event, unsigned) {
  return call("cuEventCreate", A_CONTEXT, [&] { return *event = new Event, fake->events[*event] = 1, SUCCESS; });
}
EXPORT Result cuEventDestroy_v2(Event* event) {
  return call("cuEventDestroy", A_CONTEXT, [&] {
    if (fake->events.erase(event) == 0) return violation("an event that does not live", INVALID_HANDLE);
    if (event->stream != nullptr) settle(event->stream, event);
    return delete event, SUCCESS;
  });
}
EXPORT Result cuEventRecord(Event* event, Stream* stream) {
  return call("cuEventRecord", A_CONTEXT, [&] {
    if (fake->events.count(event) == 0) return violation("an event that does not live", INVALID_HANDLE);
    const Result result = enqueue(stream, nullptr);
    if (result != SUCCESS) return result;
    stream->queue.back().recorded = event;
    event->happened = false;
    return event->stream = stream, SUCCESS;
  });
}
EXPORT Result cuEventSynchronize(Event* event) {
  return call("cuEventSynchronize", A_CONTEXT, [&] {
    if (fake->events.count(event) == 0) return violation("an event that does not live", INVALID_HANDLE);
    return event->stream == nullptr ? fake->lost : settle(event->stream, event);
  });
}
EXPORT Result cuEventElapsedTime(float* milliseconds, Event* from, Event* to) {
  return call("cuEventElapsedTime", A_CONTEXT, [&] {
    if (!from->happened || !to->happened) return NOT_READY;
    return *milliseconds = std::chrono::duration<float, std::milli>(to->at - from->at).count(), SUCCESS;
  });
}
EXPORT Result cuLaunchKernel(const SimtKernel* kernel, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                             unsigned threads_z, unsigned shared, Stream* stream, void** arguments, void** extra) {
  return call("cuLaunchKernel", A_CONTEXT, [&] {
    if (x == 0 || y != 1 || z != 1 || threads != TT_TILE_THREADS || threads_y != 1 || threads_z != 1 || shared != 0 || extra != nullptr)
      return violation("a launch of a form that is not known here");
    const TtGpuParams params = *static_cast<const TtGpuParams*>(arguments[0]);
    return enqueue(stream, [=] { return run_kernel(kernel, x, threads, params); });
  });
}
EXPORT Result cuGetProcAddress_v2(const char* name, void** found, int, unsigned long long, int* status);

namespace {

const std::map<std::string, void*> functions = {
#define NAMED(name, symbol) {#name, reinterpret_cast<void*>(symbol)}
    NAMED(cuInit, cuInit), NAMED(cuDeviceGetCount, cuDeviceGetCount), NAMED(cuMemAlloc, cuMemAlloc_v2),
    NAMED(cuMemFree, cuMemFree_v2), NAMED(cuCtxPushCurrent, cuCtxPushCurrent_v2), NAMED(cuCtxPopCurrent, cuCtxPopCurrent_v2),
    NAMED(cuLaunchKernel, cuLaunchKernel), NAMED(cuStreamSynchronize, cuStreamSynchronize),
#undef NAMED
};

const bool ready = (reset_knobs(), true);

}  // namespace

// Knows some functions by name; the others are found by their symbols, as a driver may leave it.
EXPORT Result cuGetProcAddress_v2(const char* name, void** found, int version, unsigned long long, int* status) {
  const auto function = functions.find(name);
  if (knob("by_name") == 0 || function == functions.end() || version < 12000) return *found = nullptr, *status = 1, NOT_FOUND;
  return *found = function->second, *status = 0, SUCCESS;
}
