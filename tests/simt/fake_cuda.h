// The state of the fake libcuda: what lives on the device and beside it, what is queued, what is to fail. The functions of the
// driver (fake_cuda.cpp) and those of tests (fake_cuda_control.cpp) work on it.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "abi.h"
#include "launch.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace fake_cuda {

using Result = int;
using Pointer = unsigned long long;
constexpr Result SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, DEVICE_UNAVAILABLE = 46,
                 NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, INVALID_HANDLE = 400,
                 NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, LAUNCH_TIMEOUT = 702, LAUNCH_FAILED = 719,
                 UNKNOWN = 999;

// Of an image; behind it how many words of tt_abi there are, and the words.
constexpr char MAGIC[8] = {'T', 'T', 'F', 'A', 'K', 'E', '1', '\n'};

struct Library {
  std::vector<tt_u32> abi;
};
struct Stream;
// A place in a stream: what an event stands for from the moment at which it is recorded there.
struct Mark {
  Stream* stream = nullptr;
  bool happened = false;
  std::chrono::steady_clock::time_point at;
};
struct Operation {
  std::function<Result()> run;  // NOT_READY: it hangs
  std::shared_ptr<Mark> recorded, awaited;
};
struct Stream {
  std::deque<Operation> queue;
  long long asked = 0;  // whether it has ended, since it last had
};
struct Event {
  std::shared_ptr<Mark> mark = std::make_shared<Mark>();
};
struct Failure {
  long long calls = 0, at = -1, every_from = -1;
  Result code = SUCCESS;
};

struct State {
  std::mutex guard;
  int process = 0;  // that called first
  std::map<std::string, long long> knobs = {
      {"driver_version", 13000}, {"devices", 1},          {"major", 9},           {"minor", 0},
      {"multiprocessors", 2},    {"blocks_each", 1},      {"local_bytes", 0},     {"free_memory", 1ll << 30},  // and total
      {"by_name", 1},            {"resident_blocks", 2},  {"idle_kernels", 0},    // kernels that do nothing
      {"seed", 1},
      {"takes_over", 1},   // memory that is not page-locked, before a copy of it comes back
      {"queries", 1},      // that find a stream under way before one runs what is queued there
      {"hang_from", -1},   // runs of kernels from this one on, counted from 0, do not end, until it is -1 again
      {"hang_blocks", 0}}; // a call that waits for one blocks its thread; else it is a violation
  std::map<std::string, Failure> failures;

  State();  // knobs that $FAKE_CUDA sets: of a process whose driver no test can speak to, as in `hang_from=3 major=8`
  std::string report;
  long long violations = 0, launches = 0, foreign_calls = 0;
  long long staged = 0;    // asynchronous copies from memory that is not page-locked
  Result lost = SUCCESS;   // after a fault of the device every call gives it
  long long contexts = 0;  // references to the primary one
  std::map<Pointer, std::size_t> device;  // live memory
  std::map<std::uintptr_t, std::size_t> host;
  std::map<Stream*, int> streams;
  std::map<Stream*, int> of_callers;  // streams that tests made
  Stream defaults[3];                 // by handle: the legacy one twice, that of the thread
  std::map<Event*, int> events;
  std::map<Library*, int> libraries;
  std::size_t used = 0;
};
extern State* state;
extern std::set<Stream*> former;  // that lived when a test began anew: whoever remembers one may ask for it
extern thread_local std::vector<int> current;  // contexts of this thread

inline long long knob(const char* name) { return state->knobs.at(name); }

// Notes what a driver would leave undefined.
Result violation(const std::string& what, Result result = INVALID_VALUE);

// A call of the driver begins, under its lock: the result that it must have, or SUCCESS and the lock.
enum Needs { NOTHING, A_CONTEXT };
Result begin(const char* name, Needs needs, std::unique_lock<std::mutex>& lock);

template <typename Body>
Result call(const char* name, Needs needs, Body&& body) {
  std::unique_lock<std::mutex> lock;
  const Result result = begin(name, needs, lock);
  return result == SUCCESS ? body() : result;
}

// Memory between guards, poisoned when it comes and when it goes.
Pointer allocate(std::size_t bytes);
void release(Pointer at, std::size_t bytes);
bool on_device(Pointer at, std::size_t bytes);
bool page_locked(const void* at, std::size_t bytes);

// The stream of a handle; null: none that lives.
Stream* living(Stream* handle);
Result enqueue(Stream* handle, Operation operation);
// Runs what is queued, up to and with the mark. NOT_READY: a kernel hangs.
Result settle(Stream* stream, const Mark* until = nullptr);
Result settle_all();
std::size_t queued();  // operations that nobody has waited for, in all streams
// Of a call that comes back only when all of that has ended.
Result waited(Result result);

}  // namespace fake_cuda
