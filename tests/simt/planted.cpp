// Small kernels, each with a mistake that is planted where TT_FAULT says so, and with checks of what they compute: what the
// emulator must find, and that it finds nothing else. Compiled once as they are and once with every mistake
// (tests/gpu/test_emulator.py). Not here: kernels of toktier.
#include "planted.h"

// Each tile backwards, through shared memory.
TT_KERNEL(THREADS) missing_barrier(DemoParams p) {
  TT_SHARED tt_u32 tile[THREADS];
  const tt_u32 base = tt_block() * THREADS, t = tt_thread();
  tile[t] = p.in[base + t];
  if (!TT_FAULT(missing_barrier)) tt_barrier();
  p.out[base + t] = tile[THREADS - 1 - t];
}

// The same within a warp.
TT_KERNEL(THREADS) missing_warp_barrier(DemoParams p) {
  TT_SHARED tt_u32 tile[THREADS];
  const tt_u32 base = tt_block() * THREADS, t = tt_thread(), lane = tt_lane();
  tile[t] = p.in[base + t];
  if (TT_FAULT(missing_warp_barrier))
    tt_ballot(TT_ALL_LANES, true);  // meets, and orders nothing
  else
    tt_warp_barrier(TT_ALL_LANES);
  p.out[base + t] = tile[t - lane + TT_LANES - 1 - lane];
}

// Every tile adds its number to the sum of the tiles before it, which it waits for.
TT_KERNEL(THREADS) relaxed_flag(DemoParams p) {
  TT_SHARED tt_u32 tile, sum;
  if (tt_thread() == 0) tile = tt_atomic_add(p.ticket, 1);
  tt_barrier();
  if (tt_thread() == 0) {
    sum = tile;
    if (tile > 0) {
      const tt_u32* const flag = p.flags + tile - 1;
      while ((TT_FAULT(relaxed_flag) ? __atomic_load_n(flag, __ATOMIC_RELAXED) : tt_load_acquire(flag)) == 0) tt_yield();
      sum += p.values[tile - 1];
    }
    p.values[tile] = sum;
    tt_store_release(p.flags + tile, 1);
  }
  tt_barrier();
  p.out[tile * THREADS + tt_thread()] = sum;
}

// Two halves of a block, which meet once.
TT_KERNEL(THREADS) divergent_barrier(DemoParams p) {
  TT_SHARED tt_u32 tile[THREADS];
  const tt_u32 base = tt_block() * THREADS, t = tt_thread();
  tile[t] = p.in[base + t];
  if (TT_FAULT(divergent_barrier) && t < THREADS / 2) {
    tt_barrier();
  } else {
    tt_barrier();
  }
  p.out[base + t] = tile[t ^ (THREADS / 2)];
}

// Threads that have nothing to do leave; those that stay meet.
TT_KERNEL(THREADS) ended_thread(DemoParams p) {
  TT_SHARED tt_u32 first;
  const tt_u32 base = tt_block() * THREADS, t = tt_thread();
  if (TT_FAULT(ended_thread) && t == THREADS - 1) return;
  if (t == 0) first = p.in[base];
  tt_barrier();
  p.out[base + t] = first;
}

// The upper half of each warp looks down by one lane.
TT_KERNEL(THREADS) shuffle_mask(DemoParams p) {
  const tt_u32 base = tt_block() * THREADS, t = tt_thread();
  const tt_u32 mine = p.in[base + t];
  tt_u32 got = 0;
  if (tt_lane() >= TT_LANES / 2) got = tt_shuffle(TT_FAULT(shuffle_mask) ? TT_ALL_LANES : 0xFFFF0000u, mine, tt_lane() ^ 1);
  p.out[base + t] = got;
}

TT_KERNEL(THREADS) inactive_lane(DemoParams p) {
  const tt_u32 base = tt_block() * THREADS, t = tt_thread();
  const tt_u32 mine = p.in[base + t];
  tt_u32 got = 0;
  if (tt_lane() >= TT_LANES / 2) got = tt_shuffle(0xFFFF0000u, mine, TT_FAULT(inactive_lane) ? 3 : TT_LANES - 1);
  p.out[base + t] = got;
}

// Two groups of a warp, each with its own mask.
TT_KERNEL(THREADS) other_mask(DemoParams p) {
  const tt_u32 base = tt_block() * THREADS, t = tt_thread();
  const tt_u32 lower = TT_FAULT(other_mask) ? 0x0001FFFFu : 0x0000FFFFu;
  p.out[base + t] = tt_ballot(tt_lane() < TT_LANES / 2 ? lower : 0xFFFF0000u, p.in[base + t] & 1);
}

// Half a warp shuffles while the other half votes.
TT_KERNEL(THREADS) other_operation(DemoParams p) {
  const tt_u32 base = tt_block() * THREADS, t = tt_thread();
  tt_u64 got = tt_shuffle_up(TT_ALL_LANES, static_cast<tt_u64>(p.in[base + t]) << 32, 1);
  if (TT_FAULT(other_operation) && tt_lane() == 5)
    got = tt_shuffle_down(TT_ALL_LANES, got, 1);
  else
    got += tt_ballot(TT_ALL_LANES, true);
  p.out[base + t] = static_cast<tt_u32>(got >> 32);
}

// One lane waits for its warp, the warp for the block.
TT_KERNEL(THREADS) deadlock(DemoParams p) {
  const tt_u32 base = tt_block() * THREADS, t = tt_thread();
  if (TT_FAULT(deadlock) && t == 40) tt_warp_barrier(TT_ALL_LANES);
  tt_barrier();
  p.out[base + t] = p.in[base + t];
}

// Every tile waits for the next one, which nobody runs when there are more tiles than resident blocks.
TT_KERNEL(THREADS) stuck_flag(DemoParams p) {
  const tt_u32 tile = tt_block(), t = tt_thread();
  if (t == 0 && TT_FAULT(stuck_flag))
    while (tt_load_acquire(p.flags + tile + 1) == 0) tt_yield();
  if (t == 0) tt_store_release(p.flags + tile, 1);
  p.out[tile * THREADS + t] = p.in[tile * THREADS + t];
}

TT_KERNEL(THREADS) store_beyond(DemoParams p) {
  const tt_u32 i = tt_block() * THREADS + tt_thread();
  const tt_u32 to = TT_FAULT(store_beyond) ? i + 1 : i;
  p.out[to] = p.in[i];
}

TT_KERNEL(THREADS) shared_beyond(DemoParams p) {
  TT_SHARED tt_u32 tile[THREADS];
  const tt_u32 base = tt_block() * THREADS, t = tt_thread();
  tile[TT_FAULT(shared_beyond) ? t + 1 : t] = p.in[base + t];
  tt_barrier();
  p.out[base + t] = tile[t];
}

// The same through a pointer, which has no bounds to be checked.
TT_DEV void put(tt_u32* row, tt_u32 at, tt_u32 value) { row[at] = value; }

TT_KERNEL(THREADS) shared_past_end(DemoParams p) {
  TT_SHARED tt_u32 tile[THREADS];
  const tt_u32 base = tt_block() * THREADS, t = tt_thread();
  put(tile, TT_FAULT(shared_past_end) ? t + 1 : t, p.in[base + t]);
  tt_barrier();
  p.out[base + t] = tile[t];
}

// How many of each remainder of 8.
TT_KERNEL(THREADS) unwritten_shared(DemoParams p) {
  TT_SHARED tt_u32 count[8];
  const tt_u32 base = tt_block() * THREADS, t = tt_thread();
  if (t < 8 && !TT_FAULT(unwritten_shared)) count[t] = 0;
  tt_barrier();
  tt_atomic_add(count + p.in[base + t] % 8, 1);
  tt_barrier();
  p.out[base + t] = count[t % 8];
}

TT_KERNEL(THREADS) misaligned_load(DemoParams p) {
  const tt_u32 i = tt_block() * THREADS + tt_thread();
  const tt_bytes16 v = tt_load16(p.bytes + (TT_FAULT(misaligned_load) ? 4 * i : 16 * (i / 4)));
  p.out[i] = v.word[i % 4];
}

// Spaces before each word of 32 bytes: a scan of a tile by shuffles, and of tiles by decoupled look-back. No mistake; its shape
// is that of the kernels that scan.
TT_KERNEL(THREADS) look_back(DemoParams p) {
  TT_SHARED tt_u32 of_warp[WARPS], tile, before;
  constexpr tt_u32 value_bits = 0x3FFFFFFFu, alone = 1u << 30, whole = 2u << 30;
  const tt_u32 t = tt_thread(), lane = tt_lane(), warp = t / TT_LANES;
  if (t == 0) tile = tt_atomic_add(p.ticket, 1);
  tt_barrier();
  const tt_u32 word = tile * THREADS + t;
  tt_u32 spaces = 0;
  for (tt_u32 k = 0; k < 32; k += 16) {
    const tt_bytes16 v = tt_load16(p.bytes + 32 * static_cast<tt_u64>(word) + k);
    for (const tt_u32 four : v.word)
      for (tt_u32 shift = 0; shift < 32; shift += 8) spaces += (four >> shift & 0xFF) == ' ';
  }
  tt_u32 sum = spaces;
  for (tt_u32 d = 1; d < TT_LANES; d *= 2) {
    const tt_u32 other = tt_shuffle_up(TT_ALL_LANES, sum, d);
    if (lane >= d) sum += other;
  }
  if (lane == TT_LANES - 1) of_warp[warp] = sum;
  tt_barrier();
  for (tt_u32 w = 0; w < warp; ++w) sum += of_warp[w];
  if (t == THREADS - 1) {
    before = 0;
    if (tile > 0) tt_store_release(p.flags + tile, alone | sum);
    for (tt_u32 at = tile; at > 0;) {
      const tt_u32 seen = tt_load_acquire(p.flags + at - 1);
      if (seen == 0) {
        tt_yield();
        continue;
      }
      before += seen & value_bits;
      at = (seen & whole) != 0 ? 0 : at - 1;
    }
    tt_store_release(p.flags + tile, whole | (before + sum));
  }
  tt_barrier();
  p.out[word] = before + sum - spaces;
}
