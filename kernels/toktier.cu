// The one unit that NVRTC compiles: every kernel, and the block that says which contract they keep.
#include "abi.h"
#include "device.h"

#include "documents.h"
#include "facts.h"
#include "right.h"
#include "left.h"

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
extern "C" __device__ const tt_u32 tt_abi[TT_ABI_WORDS] = TT_ABI_BLOCK;
#endif
