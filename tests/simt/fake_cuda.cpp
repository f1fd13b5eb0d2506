// libcuda as the host engine sees it: every driver call that native/gpu and tools make, with kernels run by the emulator. Device
// memory is memory of this process between guards. A stream keeps what is queued until somebody waits for it, so that a result
// that is read too early is not there. Tests make calls fail, kernels hang, and change the device (fake_cuda_control.cpp).
// Whatever a driver would leave undefined is counted (`violations`) with a sentence. Not here: anything of a device's speed.
#include <cstring>

#include "fake_cuda.h"

using namespace fake_cuda;

namespace {

int the_context;  // its address is the handle

const std::map<Result, const char*> error_names = {
    {SUCCESS, "CUDA_SUCCESS"}, {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"}, {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"}, {NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"}, {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"}, {UNKNOWN, "CUDA_ERROR_UNKNOWN"}};

// The ELF header of a CUDA binary, of which nothing more is read: its kernels are those of the emulator, its block ours.
bool is_cubin(const void* image) {
  constexpr unsigned short CUDA = 190;
  unsigned short machine;
  std::memcpy(&machine, static_cast<const char*>(image) + 18, sizeof machine);
  return std::memcmp(image, "\x7f" "ELF", 4) == 0 && machine == CUDA;
}

Result run_kernel(const SimtKernel* kernel, unsigned blocks, unsigned threads, const TtGpuParams& params) {
  if (knob("hang_from") >= 0 && state->launches >= knob("hang_from")) return NOT_READY;
  Failure& failure = state->failures["kernel"];
  const long long n = ++failure.calls;
  if (n == failure.at) return failure.code;
  const long long launch = state->launches++;
  if (knob("idle_kernels") != 0) return SUCCESS;
  SimtOptions options;
  options.seed = static_cast<std::uint64_t>(knob("seed")) + static_cast<std::uint64_t>(launch);
  options.resident_blocks = static_cast<std::uint32_t>(knob("resident_blocks"));
  char report[400] = "";
  if (simt_launch(*kernel, blocks, threads, params, options, report, sizeof report) == SIMT_OK) return SUCCESS;
  return violation(report, LAUNCH_FAILED);
}

// A copy from memory that is not page-locked: a driver takes the bytes over at once, unless its device reaches such memory by
// itself, which then reads it when the turn of the copy comes.
std::function<Result()> taken_over(Pointer to, const void* from, std::size_t bytes) {
  const bool at_once = knob("takes_over") != 0;
  const std::string copy(at_once ? static_cast<const char*>(from) : "", at_once ? bytes : 0);
  return [=] {
    if (!on_device(to, bytes)) return violation("a copy to no device memory", ILLEGAL_ADDRESS);
    return std::memcpy(reinterpret_cast<void*>(to), at_once ? copy.data() : from, bytes), SUCCESS;
  };
}

}  // namespace

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
    const std::map<int, const char*> known = {{16, "multiprocessors"}, {75, "major"}, {76, "minor"}};
    if (known.count(attribute) == 0) return violation("an attribute of devices that is not known here");
    return *value = static_cast<int>(knob(known.at(attribute))), SUCCESS;
  });
}
EXPORT Result cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  return call("cuDeviceTotalMem", NOTHING, [&] { return *bytes = static_cast<std::size_t>(knob("free_memory")), SUCCESS; });
}
EXPORT Result cuDevicePrimaryCtxRetain(void** context, int) {
  return call("cuDevicePrimaryCtxRetain", NOTHING, [&] {
    ++state->contexts;
    return *context = &the_context, SUCCESS;
  });
}
EXPORT Result cuDevicePrimaryCtxRelease_v2(int) {
  return call("cuDevicePrimaryCtxRelease", NOTHING, [&] {
    if (state->contexts == 0) return violation("the primary context is released once too often", INVALID_CONTEXT);
    if (state->contexts == 1 && waited(settle_all()) != SUCCESS) return LAUNCH_TIMEOUT;
    return --state->contexts, SUCCESS;
  });
}
EXPORT Result cuCtxPushCurrent_v2(void* context) {
  return call("cuCtxPushCurrent", NOTHING, [&] {
    if (context != &the_context || state->contexts == 0) return violation("a context that does not live", INVALID_CONTEXT);
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
    const bool ours = std::memcmp(image, MAGIC, sizeof MAGIC) == 0;
    if (!ours && !is_cubin(image)) return NO_BINARY_FOR_GPU;
    tt_u32 count = TT_ABI_WORDS;
    if (ours) std::memcpy(&count, static_cast<const char*>(image) + sizeof MAGIC, sizeof count);
    *library = new Library{std::vector<tt_u32>(count)};
    const tt_u32 own[] = TT_ABI_BLOCK;
    const void* const words = ours ? static_cast<const char*>(image) + sizeof MAGIC + sizeof count : static_cast<const void*>(own);
    std::memcpy((*library)->abi.data(), words, count * sizeof(tt_u32));
    state->libraries[*library] = 1;
    // Its variables lie on the device, and a copy of them is a copy from there.
    state->device[reinterpret_cast<Pointer>((*library)->abi.data())] = count * sizeof(tt_u32);
    return SUCCESS;
  });
}
EXPORT Result cuLibraryUnload(Library* library) {
  return call("cuLibraryUnload", A_CONTEXT, [&] {
    if (state->libraries.count(library) == 0) return violation("a library that is not loaded", INVALID_HANDLE);
    if (waited(settle_all()) != SUCCESS) return LAUNCH_TIMEOUT;
    state->libraries.erase(library);
    state->device.erase(reinterpret_cast<Pointer>(library->abi.data()));
    delete library;
    return SUCCESS;
  });
}
EXPORT Result cuLibraryGetKernel(const SimtKernel** kernel, Library* library, const char* name) {
  return call("cuLibraryGetKernel", NOTHING, [&] {
    if (state->libraries.count(library) == 0) return violation("a library that is not loaded", INVALID_HANDLE);
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
    return *free = *total - state->used, SUCCESS;
  });
}
EXPORT Result cuMemAlloc_v2(Pointer* at, std::size_t bytes) {
  return call("cuMemAlloc", A_CONTEXT, [&] {
    if (bytes == 0) return violation("an allocation of nothing");
    if (state->used + bytes > static_cast<std::size_t>(knob("free_memory"))) return OUT_OF_MEMORY;
    *at = allocate(bytes);
    state->device[*at] = bytes;
    return state->used += bytes, SUCCESS;
  });
}
EXPORT Result cuMemFree_v2(Pointer at) {
  return call("cuMemFree", A_CONTEXT, [&] {
    const auto found = state->device.find(at);
    if (found == state->device.end()) return violation("device memory that does not live is freed");
    if (waited(settle_all()) != SUCCESS) return LAUNCH_TIMEOUT;
    release(at, found->second);
    state->used -= found->second;
    return state->device.erase(found), SUCCESS;
  });
}
EXPORT Result cuMemHostAlloc(void** at, std::size_t bytes, unsigned) {
  return call("cuMemHostAlloc", A_CONTEXT, [&] {
    const Pointer memory = allocate(bytes);
    state->host[static_cast<std::uintptr_t>(memory)] = bytes;
    return *at = reinterpret_cast<void*>(memory), SUCCESS;
  });
}
EXPORT Result cuMemFreeHost(void* at) {
  return call("cuMemFreeHost", A_CONTEXT, [&] {
    const auto found = state->host.find(reinterpret_cast<std::uintptr_t>(at));
    if (found == state->host.end()) return violation("page-locked memory that does not live is freed");
    if (waited(settle_all()) != SUCCESS) return LAUNCH_TIMEOUT;
    release(reinterpret_cast<Pointer>(at), found->second);
    return state->host.erase(found), SUCCESS;
  });
}
// Of memory that is not page-locked it comes back when the driver has taken the bytes over: they arrive in the legacy stream,
// for which streams like ours do not wait.
EXPORT Result cuMemcpyHtoD_v2(Pointer to, const void* from, std::size_t bytes) {
  return call("cuMemcpyHtoD", A_CONTEXT, [&] {
    if (!on_device(to, bytes)) return violation("a copy to no device memory");
    if (!page_locked(from, bytes)) return enqueue(nullptr, {taken_over(to, from, bytes), nullptr, nullptr});
    return std::memcpy(reinterpret_cast<void*>(to), from, bytes), SUCCESS;
  });
}
EXPORT Result cuMemcpyDtoH_v2(void* to, Pointer from, std::size_t bytes) {
  return call("cuMemcpyDtoH", A_CONTEXT, [&] {
    if (!on_device(from, bytes)) return violation("a copy from no device memory");
    if (waited(settle(living(nullptr))) != SUCCESS) return LAUNCH_TIMEOUT;
    return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), SUCCESS;
  });
}
EXPORT Result cuMemcpyDtoD_v2(Pointer to, Pointer from, std::size_t bytes) {
  return call("cuMemcpyDtoD", A_CONTEXT, [&] {
    if (!on_device(from, bytes) || !on_device(to, bytes)) return violation("a copy within no device memory");
    return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes), SUCCESS;
  });
}
EXPORT Result cuCtxSynchronize() {
  return call("cuCtxSynchronize", A_CONTEXT, [&] { return waited(settle_all()); });
}
EXPORT Result cuMemcpyHtoDAsync_v2(Pointer to, const void* from, std::size_t bytes, Stream* stream) {
  return call("cuMemcpyHtoDAsync", A_CONTEXT, [&] {
    if (!page_locked(from, bytes)) {
      ++state->staged;
      return enqueue(stream, {taken_over(to, from, bytes), nullptr, nullptr});
    }
    return enqueue(stream, {[=] {
      if (!on_device(to, bytes) || !page_locked(from, bytes)) return violation("a copy to no device memory", ILLEGAL_ADDRESS);
      return std::memcpy(reinterpret_cast<void*>(to), from, bytes), SUCCESS;
    }, nullptr, nullptr});
  });
}
EXPORT Result cuMemcpyDtoHAsync_v2(void* to, Pointer from, std::size_t bytes, Stream* stream) {
  return call("cuMemcpyDtoHAsync", A_CONTEXT, [&] {
    if (!page_locked(to, bytes)) return violation("an asynchronous copy to memory that is not page-locked");
    return enqueue(stream, {[=] {
      if (!on_device(from, bytes) || !page_locked(to, bytes)) return violation("a copy from no device memory", ILLEGAL_ADDRESS);
      return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), SUCCESS;
    }, nullptr, nullptr});
  });
}
EXPORT Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, std::size_t bytes, Stream* stream) {
  return call("cuMemcpyDtoDAsync", A_CONTEXT, [&] {
    return enqueue(stream, {[=] {
      if (!on_device(from, bytes) || !on_device(to, bytes)) return violation("a copy within no device memory", ILLEGAL_ADDRESS);
      return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes), SUCCESS;
    }, nullptr, nullptr});
  });
}
EXPORT Result cuMemsetD8Async(Pointer to, unsigned char value, std::size_t bytes, Stream* stream) {
  return call("cuMemsetD8Async", A_CONTEXT, [&] {
    return enqueue(stream, {[=] {
      if (!on_device(to, bytes)) return violation("no device memory is set", ILLEGAL_ADDRESS);
      return std::memset(reinterpret_cast<void*>(to), value, bytes), SUCCESS;
    }, nullptr, nullptr});
  });
}
EXPORT Result cuStreamCreate(Stream** stream, unsigned) {
  return call("cuStreamCreate", A_CONTEXT, [&] { return *stream = new Stream, state->streams[*stream] = 1, SUCCESS; });
}
EXPORT Result cuStreamDestroy_v2(Stream* stream) {
  return call("cuStreamDestroy", A_CONTEXT, [&] {
    if (state->streams.count(stream) == 0) return violation("a stream that does not live", INVALID_HANDLE);
    if (waited(settle(stream)) != SUCCESS) return LAUNCH_TIMEOUT;
    state->streams.erase(stream);
    return delete stream, SUCCESS;
  });
}
EXPORT Result cuStreamQuery(Stream* handle) {
  return call("cuStreamQuery", A_CONTEXT, [&] {
    Stream* const stream = living(handle);
    if (stream == nullptr && former.count(handle) != 0) return SUCCESS;
    if (stream == nullptr) return violation("a stream that does not live", INVALID_HANDLE);
    if (!stream->queue.empty() && stream->asked++ < knob("queries")) return NOT_READY;
    stream->asked = 0;
    return settle(stream);
  });
}
EXPORT Result cuStreamWaitEvent(Stream* stream, Event* event, unsigned flags) {
  return call("cuStreamWaitEvent", A_CONTEXT, [&] {
    if (state->events.count(event) == 0) return violation("an event that does not live", INVALID_HANDLE);
    if (flags != 0 || event->mark->stream == nullptr) return violation("a wait for an event that was not recorded");
    return enqueue(stream, {nullptr, nullptr, event->mark});
  });
}
EXPORT Result cuEventCreate(Event** event, unsigned) {
  return call("cuEventCreate", A_CONTEXT, [&] { return *event = new Event, state->events[*event] = 1, SUCCESS; });
}
EXPORT Result cuEventDestroy_v2(Event* event) {
  return call("cuEventDestroy", A_CONTEXT, [&] {
    if (state->events.erase(event) == 0) return violation("an event that does not live", INVALID_HANDLE);
    return delete event, SUCCESS;
  });
}
EXPORT Result cuEventRecord(Event* event, Stream* stream) {
  return call("cuEventRecord", A_CONTEXT, [&] {
    if (state->events.count(event) == 0) return violation("an event that does not live", INVALID_HANDLE);
    event->mark = std::make_shared<Mark>();
    return enqueue(stream, {nullptr, event->mark, nullptr});
  });
}
EXPORT Result cuEventElapsedTime(float* milliseconds, Event* from, Event* to) {
  return call("cuEventElapsedTime", A_CONTEXT, [&] {
    if (!from->mark->happened || !to->mark->happened) return NOT_READY;
    return *milliseconds = std::chrono::duration<float, std::milli>(to->mark->at - from->mark->at).count(), SUCCESS;
  });
}
EXPORT Result cuLaunchKernel(const SimtKernel* kernel, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                             unsigned threads_z, unsigned shared, Stream* stream, void** arguments, void** extra) {
  return call("cuLaunchKernel", A_CONTEXT, [&] {
    const bool flat = x != 0 && y == 1 && z == 1 && threads == TT_TILE_THREADS && threads_y == 1 && threads_z == 1;
    if (!flat || shared != 0 || extra != nullptr) return violation("a launch of a form that is not known here");
    const TtGpuParams params = *static_cast<const TtGpuParams*>(arguments[0]);
    return enqueue(stream, {[=] { return run_kernel(kernel, x, threads, params); }, nullptr, nullptr});
  });
}
EXPORT Result cuGetProcAddress_v2(const char* name, void** found, int, unsigned long long, int* status);

namespace {

const std::map<std::string, void*> functions = {
#define NAMED(name, symbol) {#name, reinterpret_cast<void*>(symbol)}
    NAMED(cuInit, cuInit), NAMED(cuDeviceGetCount, cuDeviceGetCount), NAMED(cuMemAlloc, cuMemAlloc_v2),
    NAMED(cuMemFree, cuMemFree_v2), NAMED(cuCtxPushCurrent, cuCtxPushCurrent_v2), NAMED(cuCtxPopCurrent, cuCtxPopCurrent_v2),
    NAMED(cuLaunchKernel, cuLaunchKernel), NAMED(cuStreamQuery, cuStreamQuery),
#undef NAMED
};


}  // namespace

// Knows some functions by name; the others are found by their symbols, as a driver may leave it.
EXPORT Result cuGetProcAddress_v2(const char* name, void** found, int version, unsigned long long, int* status) {
  const auto function = functions.find(name);
  if (knob("by_name") == 0 || function == functions.end() || version < 12000) return *found = nullptr, *status = 1, NOT_FOUND;
  return *found = function->second, *status = 0, SUCCESS;
}
