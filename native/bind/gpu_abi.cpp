// `_native.gpu_abi` and `_native.gpu_kernels`: what this module expects of a cubin before it launches anything from it.
#include "bind/bind.h"
#include "device/abi.h"

namespace nb = nanobind;

namespace toktier::bind {

namespace {
constexpr tt_u32 kAbi[] = TT_ABI_BLOCK;
static_assert(sizeof(kAbi) / sizeof(kAbi[0]) == TT_ABI_WORDS);

constexpr const char* kKernels[] = {
#define TT_X(name, work) #name,
    TT_KERNELS(TT_X)
#undef TT_X
};
static_assert(sizeof(kKernels) / sizeof(kKernels[0]) == TT_KERNEL_COUNT);
}  // namespace

void register_gpu_abi(nb::module_& m) {
  m.def("gpu_abi", [] {
    nb::list words;
    for (const tt_u32 word : kAbi) words.append(word);
    return nb::tuple(words);
  });
  m.def("gpu_kernels", [] {
    nb::list names;
    for (const char* name : kKernels) names.append(name);
    return nb::tuple(names);
  });
}

}  // namespace toktier::bind
