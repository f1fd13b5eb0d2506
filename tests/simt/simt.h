// The names of kernels/device/device.h for g++ (C++17): device code that NVRTC compiles for a GPU runs on a CPU instead, a fiber
// for each CUDA thread. Whatever CUDA leaves undefined is reported, not imitated: docs/decisions.md says what that means.
// Included by device.h alone. Not here: how threads take turns and meet (block.h), how a grid is launched (launch.h). What this
// cannot show: code that ptxas makes, memory models weaker than ThreadSanitizer's, speed.
#pragma once

namespace simt {

// Each fiber has a region of its own, aligned to its size: any address on its stack tells which thread runs. Control blocks stand
// at different offsets, because 128 of them at one offset of such regions would share a few lines of every cache.
constexpr tt_u64 REGION_BYTES = 1u << 19;
constexpr tt_u64 COLOURS = 64;
constexpr tt_u64 COLOUR_BYTES = 256;

struct Thread {
  tt_u32 index, threads, block, blocks;
};

// Where in the source something is called.
struct Place {
  const char* file;
  tt_u32 line;
};

enum class Operation : tt_u32 { WARP_BARRIER, SHUFFLE, SHUFFLE_UP, SHUFFLE_DOWN, BALLOT, WARP_MIN };

inline const Thread& self() {
  const tt_u64 at = reinterpret_cast<tt_u64>(__builtin_frame_address(0));
  return *reinterpret_cast<const Thread*>(at / REGION_BYTES * REGION_BYTES + at / REGION_BYTES % COLOURS * COLOUR_BYTES);
}

void barrier(Place place);
// What the lanes in `lanes` do together; `from` is the lane whose value is wanted.
tt_u64 meet(Operation operation, tt_u32 bytes, tt_u32 lanes, tt_u64 value, tt_u32 from, Place place);
void yield(Place place);
// An access that other blocks may see: before it, another thread may go first.
void interleave(Place place);
// Something was published, so that threads that only wait may have a reason to go on.
void progress();
[[noreturn]] void misuse(const char* what, Place place);

template <typename T>
T exchange(Operation operation, tt_u32 lanes, T value, tt_u32 from, Place place) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
  tt_u64 bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  bits = meet(operation, sizeof value, lanes, bits, from, place);
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace simt

#define TT_DEV inline
#define TT_KERNEL(threads) extern "C" void
// Poisoned before each block (shared_memory.h). One copy for each resident block, which has a thread of the operating system to
// itself; under AddressSanitizer, which guards ordinary variables only, one copy, and one resident block.
#ifdef SIMT_ASAN
#define TT_SHARED static __attribute__((section("simt_shared")))
#else
#define TT_SHARED static thread_local
#endif

// true where this unit is compiled with -DTT_PLANT_name
#define TT_FAULT(name) TT_SIMT_IS_ONE(TT_PLANT_##name)
#define TT_SIMT_IS_ONE(value) TT_SIMT_IS_ONE_(value)
#define TT_SIMT_IS_ONE_(value) TT_SIMT_CHOOSE(TT_SIMT_NOTHING_##value)
#define TT_SIMT_NOTHING_1 ,
#define TT_SIMT_CHOOSE(nothing) TT_SIMT_SECOND(nothing true, false, )
#define TT_SIMT_SECOND(a, b, ...) b

#define TT_SIMT_PLACE const char *file = __builtin_FILE(), tt_u32 line = __builtin_LINE()

TT_DEV tt_u32 tt_thread() { return simt::self().index; }
TT_DEV tt_u32 tt_lane() { return simt::self().index & (TT_LANES - 1); }
TT_DEV tt_u32 tt_threads() { return simt::self().threads; }
TT_DEV tt_u32 tt_block() { return simt::self().block; }
TT_DEV tt_u32 tt_blocks() { return simt::self().blocks; }

TT_DEV void tt_barrier(TT_SIMT_PLACE) { simt::barrier({file, line}); }
TT_DEV void tt_warp_barrier(tt_u32 lanes, TT_SIMT_PLACE) {
  simt::meet(simt::Operation::WARP_BARRIER, 0, lanes, 0, tt_lane(), {file, line});
}
template <typename T>
TT_DEV T tt_shuffle(tt_u32 lanes, T value, tt_u32 from, TT_SIMT_PLACE) {
  return simt::exchange(simt::Operation::SHUFFLE, lanes, value, from & (TT_LANES - 1), {file, line});
}
template <typename T>
TT_DEV T tt_shuffle_up(tt_u32 lanes, T value, tt_u32 distance, TT_SIMT_PLACE) {
  const tt_u32 lane = tt_lane();
  return simt::exchange(simt::Operation::SHUFFLE_UP, lanes, value, lane < distance ? lane : lane - distance, {file, line});
}
template <typename T>
TT_DEV T tt_shuffle_down(tt_u32 lanes, T value, tt_u32 distance, TT_SIMT_PLACE) {
  const tt_u32 lane = tt_lane();
  const tt_u32 from = distance < TT_LANES - lane ? lane + distance : lane;
  return simt::exchange(simt::Operation::SHUFFLE_DOWN, lanes, value, from, {file, line});
}
TT_DEV tt_u32 tt_ballot(tt_u32 lanes, bool set, TT_SIMT_PLACE) {
  return static_cast<tt_u32>(simt::meet(simt::Operation::BALLOT, 0, lanes, set, tt_lane(), {file, line}));
}
TT_DEV tt_u32 tt_warp_min(tt_u32 lanes, tt_u32 value, TT_SIMT_PLACE) {
  if (lanes != TT_ALL_LANES) simt::misuse("takes the minimum of fewer than 32 lanes, which needs sm_80,", {file, line});
  return static_cast<tt_u32>(simt::meet(simt::Operation::WARP_MIN, 0, lanes, value, tt_lane(), {file, line}));
}

TT_DEV tt_u32 tt_atomic_add(tt_u32* at, tt_u32 value, TT_SIMT_PLACE) {
  simt::interleave({file, line});
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
TT_DEV tt_u32 tt_atomic_or(tt_u32* at, tt_u32 value, TT_SIMT_PLACE) {
  simt::interleave({file, line});
  return __atomic_fetch_or(at, value, __ATOMIC_RELAXED);
}
TT_DEV tt_u32 tt_load_acquire(const tt_u32* at, TT_SIMT_PLACE) {
  simt::interleave({file, line});
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
TT_DEV void tt_store_release(tt_u32* at, tt_u32 value, TT_SIMT_PLACE) {
  simt::interleave({file, line});
  __atomic_store_n(at, value, __ATOMIC_RELEASE);
  simt::progress();
}
TT_DEV void tt_yield(TT_SIMT_PLACE) { simt::yield({file, line}); }

TT_DEV tt_u32 tt_count_bits(tt_u32 bits) { return static_cast<tt_u32>(__builtin_popcount(bits)); }
TT_DEV tt_u32 tt_lowest_bit(tt_u32 bits, TT_SIMT_PLACE) {
  if (bits == 0) simt::misuse("asks for the lowest bit of 0", {file, line});
  return static_cast<tt_u32>(__builtin_ctz(bits));
}
TT_DEV tt_u32 tt_highest_bit(tt_u32 bits, TT_SIMT_PLACE) {
  if (bits == 0) simt::misuse("asks for the highest bit of 0", {file, line});
  return 31 - static_cast<tt_u32>(__builtin_clz(bits));
}

struct tt_bytes16 {
  tt_u32 word[4];
};
TT_DEV tt_bytes16 tt_load16(const tt_u8* at, TT_SIMT_PLACE) {
  if (reinterpret_cast<tt_u64>(at) % 16 != 0)
    simt::misuse("loads 16 bytes from an address that is no multiple of 16", {file, line});
  tt_bytes16 v;
  __builtin_memcpy(v.word, at, sizeof v.word);
  return v;
}
