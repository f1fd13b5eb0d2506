// The reasons as arrays.
#include "counters.h"

namespace toktier::gpu {

const tt_u32 left_bits[kLeftReasons] = {
#define TT_X(bit, code) bit,
    TT_LEFT_REASONS(TT_X)
#undef TT_X
};
const char* const left_reasons[kLeftReasons] = {
#define TT_X(bit, code) #code,
    TT_LEFT_REASONS(TT_X)
#undef TT_X
};

}  // namespace toktier::gpu
