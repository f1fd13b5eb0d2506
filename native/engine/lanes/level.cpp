// What the CPU says of itself. Every feature that a level is compiled with is asked for, so that none is assumed.
#include "level.h"

namespace toktier {

namespace {

std::vector<Level> detect() {
  std::vector<Level> levels{Level::baseline};
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v2 = __builtin_cpu_supports("sse3") && __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") &&
                  __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                  __builtin_cpu_supports("fma") && __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
                  __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512bitalg") &&
                  __builtin_cpu_supports("avx512vpopcntdq");
  if (v2) levels.push_back(Level::v2);
  if (v3) levels.push_back(Level::v3);
  if (v4) levels.push_back(Level::v4);
#elif defined(__aarch64__)
  levels.push_back(Level::neon);  // part of every AArch64
#endif
  return levels;
}

}  // namespace

const std::vector<Level>& available_levels() {
  static const std::vector<Level> levels = detect();
  return levels;
}

Level best_level() { return available_levels().back(); }

const char* level_name(Level level) {
  constexpr const char* names[] = {"baseline", "v2", "v3", "v4", "neon"};
  return names[static_cast<unsigned>(level)];
}

std::optional<Level> level_of(std::string_view name) {
  for (const Level level : available_levels())
    if (name == level_name(level)) return level;
  return std::nullopt;
}

}  // namespace toktier
