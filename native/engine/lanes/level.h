// Dispatch levels: which machine instructions the inner loops may use. One source of each inner loop (lanes/*_lanes.cpp) is
// compiled once a level; a context runs at the best level that this CPU has, or at one that a test asks for. The level is a
// matter of speed alone: every level gives the same ids, and tests hold each to the baseline.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace toktier {

enum class Level : std::uint8_t {
  baseline,  // plain C++, whatever the machine
  v2,        // x86-64-v2: SSSE3, SSE4.2, popcnt
  v3,        // x86-64-v3 and AES: AVX2, BMI
  v4,        // x86-64-v4 with VBMI, VBMI2, BITALG, VPOPCNTDQ and AES: AVX-512
  neon,      // AArch64
};

// Those that are compiled in and that this CPU runs, slowest first; never empty.
const std::vector<Level>& available_levels();
Level best_level();
const char* level_name(Level level);
std::optional<Level> level_of(std::string_view name);  // only an available one

}  // namespace toktier
