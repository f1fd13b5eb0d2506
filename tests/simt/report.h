// Words for what a block reports: places of the source and names of operations. The sentences are in block.cpp and report.cpp.
#pragma once
#include "device.h"

namespace simt {

// file.cuh:12, as long as it is passed on.
struct Where {
  explicit Where(Place place);
  char text[128];
};

bool same(Place a, Place b);
const char* name_of(Operation operation);

}  // namespace simt
