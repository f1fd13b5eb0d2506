// The __shared__ variables of the kernels of this module, in the thread of the operating system that calls: they are thread_local
// (simt.h), and so all lie in one block of memory, which the dynamic loader knows; under AddressSanitizer in a section of their
// own. Filled with poison before each block, because a GPU does not clear them, and zeros would hide that a kernel counts on it.
// In a thread that runs blocks nothing else of the module's thread_local data may be in use, or be used later.
#pragma once
#include "device.h"

namespace simt {

struct SharedMemory {
  tt_u8* begin;
  tt_u64 bytes;
  static SharedMemory find();
  void poison(tt_u64 seed) const;
};

}  // namespace simt
