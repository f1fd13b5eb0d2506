// What a lane source (lanes/*_lanes.cpp) needs: the macro of its level's namespace, and the rule that keeps levels apart.
//
// A lane source is compiled once for each level with other machine flags. A function that two levels both emit under one name
// would be linked once, from either: code for a newer CPU could run on an older one. So a lane source puts all it defines in
// TOKTIER_LANE_NAMESPACE or an unnamed namespace, includes only headers whose functions are `TT_HD` or `always_inline`, and
// uses no function templates of the standard library (std::min and the like are such functions). A test looks at the symbols
// of the object files. What a lane source offers is one table of function pointers, picked by the function that
// TOKTIER_LANE_DECLARE makes.
#pragma once
#include "level.h"

#ifndef TOKTIER_LANE
#define TOKTIER_LANE baseline
#endif
#define TOKTIER_LANE_JOIN2(a, b) a##b
#define TOKTIER_LANE_JOIN(a, b) TOKTIER_LANE_JOIN2(a, b)
#define TOKTIER_LANE_NAMESPACE TOKTIER_LANE_JOIN(lane_, TOKTIER_LANE)
// Whether the source is compiled for the level without vectors.
#define TOKTIER_LANE_NAME2(name) #name
#define TOKTIER_LANE_NAME(name) TOKTIER_LANE_NAME2(name)
#define TOKTIER_LANE_IS_BASELINE (TOKTIER_LANE_NAME(TOKTIER_LANE)[0] == 'b')
// Of a table `name`: its symbol in this level, `name_v3` and the like.
#define TOKTIER_LANE_TABLE(name) TOKTIER_LANE_JOIN(TOKTIER_LANE_JOIN(name, _), TOKTIER_LANE)

#define TOKTIER_INLINE [[maybe_unused, gnu::always_inline]] inline

// Declares `extern const Table name_<level>` for every level and `const Table& name(Level)`; used in a header, in namespace
// toktier. A lane source that includes the header defines its own with TOKTIER_LANE_TABLE.
#define TOKTIER_LANE_DECLARE(Table, name)                         \
  TOKTIER_LANE_EXTERNS_(Table, name)                              \
  [[maybe_unused]] static inline const Table& name(Level level) { \
    switch (level) {                                              \
      TOKTIER_LANE_CASES_(name)                                   \
      default:                                                    \
        return name##_baseline;                                   \
    }                                                             \
  }
#if defined(__x86_64__)
#define TOKTIER_LANE_EXTERNS_(Table, name) \
  extern const Table name##_baseline, name##_v2, name##_v3, name##_v4;
#define TOKTIER_LANE_CASES_(name) \
  case Level::v2: return name##_v2; \
  case Level::v3: return name##_v3; \
  case Level::v4: return name##_v4;
#elif defined(__aarch64__)
#define TOKTIER_LANE_EXTERNS_(Table, name) extern const Table name##_baseline, name##_neon;
#define TOKTIER_LANE_CASES_(name) \
  case Level::neon: return name##_neon;
#else
#define TOKTIER_LANE_EXTERNS_(Table, name) extern const Table name##_baseline;
#define TOKTIER_LANE_CASES_(name)
#endif
