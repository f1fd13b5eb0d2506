// Runs one kernel of planted.cpp and compares what it wrote with a plain loop: as a function of a library, and as a program,
// because a sanitizer must be there from the start. Result, and exit code: 0 right, 3 wrong results, 4 a report; what a sanitizer
// finds ends the program in its own way; 2: not run. Arguments: kernel, blocks, resident blocks, seed, 1 for shuffled blocks.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "launch.h"
#include "planted.h"

namespace {

using Words = std::vector<tt_u32>;

struct Demo {
  const char* name;
  void (*kernel)(DemoParams);
};
constexpr Demo demos[] = {
#define TT_X(name) {#name, name},
    DEMOS(TT_X)
#undef TT_X
};

// What a kernel writes for thread t of block b, whose input begins at `in`.
tt_u32 expected(const char* name, const tt_u32* in, const tt_u8* bytes, tt_u32 b, tt_u32 t) {
  const auto is = [&](const char* other) { return std::strcmp(name, other) == 0; };
  const tt_u32 lane = t % TT_LANES, half = TT_LANES / 2;
  if (is("missing_barrier")) return in[THREADS - 1 - t];
  if (is("missing_warp_barrier")) return in[t - lane + TT_LANES - 1 - lane];
  if (is("relaxed_flag")) return b * (b + 1) / 2;
  if (is("divergent_barrier")) return in[t ^ (THREADS / 2)];
  if (is("ended_thread")) return in[0];
  if (is("shuffle_mask")) return lane < half ? 0 : in[t ^ 1];
  if (is("inactive_lane")) return lane < half ? 0 : in[t - lane + TT_LANES - 1];
  if (is("other_mask")) {
    tt_u32 votes = 0;
    for (tt_u32 k = lane / half * half; k < (lane / half + 1) * half; ++k) votes |= (in[t - lane + k] & 1) << k;
    return votes;
  }
  if (is("other_operation")) return lane == 0 ? in[t] : in[t - 1];
  if (is("unwritten_shared")) {
    tt_u32 count = 0;
    for (tt_u32 k = 0; k < THREADS; ++k) count += in[k] % 8 == t % 8;
    return count;
  }
  if (is("misaligned_load")) {
    tt_u32 word;
    std::memcpy(&word, bytes + 4 * (b * THREADS + t), sizeof word);
    return word;
  }
  if (is("look_back")) {
    tt_u32 spaces = 0;
    for (tt_u32 k = 0; k < 32 * (b * THREADS + t); ++k) spaces += bytes[k] == ' ';
    return spaces;
  }
  return in[t];
}

}  // namespace

// `said`: the report, or how many words are wrong, and a digest of all.
extern "C" int planted_run(const char* name, tt_u32 blocks, tt_u32 resident, tt_u64 seed, bool shuffled, char* said,
                           std::size_t said_bytes) {
  const Demo* demo = nullptr;
  for (const Demo& each : demos)
    if (std::strcmp(each.name, name) == 0) demo = &each;
  if (demo == nullptr || blocks == 0) return 2;
  SimtOptions options;
  options.resident_blocks = resident;
  options.seed = seed;
  options.shuffled_blocks = shuffled;

  const tt_u32 n = blocks * THREADS;
  Words in(n), out(n, 0xDEADBEEF), flags(blocks + 1), values(blocks);
  struct alignas(16) Sixteen {
    tt_u8 byte[16];
  };
  std::vector<Sixteen> text(2 * n);
  for (tt_u32 i = 0; i < n; ++i) in[i] = i * 2654435761u >> 7;
  for (tt_u32 i = 0; i < 32 * n; ++i) text[i / 16].byte[i % 16] = i * 2654435761u >> 29 == 0 ? ' ' : 'a';
  tt_u32 ticket = 0;
  const DemoParams params{in.data(), text[0].byte, out.data(), flags.data(), values.data(), &ticket};
  const int status = simt_launch(demo->name, demo->kernel, params, blocks, THREADS, options, said, said_bytes);
  if (status != SIMT_OK) return status == SIMT_MISUSE ? 4 : 2;
  tt_u32 wrong = 0;
  tt_u64 digest = 0;
  for (tt_u32 i = 0; i < n; ++i) {
    const tt_u32 block = i / THREADS;
    wrong += out[i] != expected(demo->name, &in[block * THREADS], text[0].byte, block, i % THREADS);
    digest = (digest ^ out[i]) * 1099511628211ull;
  }
  std::snprintf(said, said_bytes, "%u of %u words are wrong, digest %016llx", wrong, n, digest);
  return wrong == 0 ? 0 : 3;
}

int main(int count, char** arguments) {
  if (count != 6) return 2;
  const auto number = [&](int i) { return std::strtoull(arguments[i], nullptr, 10); };
  char said[1024] = "";
  const int result = planted_run(arguments[1], static_cast<tt_u32>(number(2)), static_cast<tt_u32>(number(3)), number(4),
                                 number(5) == 1, said, sizeof said);
  std::puts(said);
  return result;
}
