// The one unit that NVRTC compiles: every kernel, in the order of docs/gpu.md, and the block that says which contract they keep.
#include "abi.h"
#include "device.h"

#include "documents.h"
#include "facts.h"
#include "right.h"
#include "left.h"
#include "pieces.h"
#include "spans.h"
#include "merge_thread.h"
#include "merge_warp.h"
#include "merge_block.h"
#include "gather.h"
#include "rows.h"
#include "characters.h"
#include "offsets.h"

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
extern "C" __device__ const tt_u32 tt_abi[TT_ABI_WORDS] = TT_ABI_BLOCK;
#endif
