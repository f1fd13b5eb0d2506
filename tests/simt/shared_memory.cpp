// Where the linker or the dynamic loader has put the shared variables, and the poison.
#include "shared_memory.h"

#ifndef SIMT_ASAN
#include <link.h>
#endif

#include "random.h"

#ifdef SIMT_ASAN
// Of the linker; missing where no kernel has shared variables. Between the variables lie the guards of AddressSanitizer.
extern "C" tt_u8 __start_simt_shared[] __attribute__((weak, visibility("hidden")));
extern "C" tt_u8 __stop_simt_shared[] __attribute__((weak, visibility("hidden")));
#endif

namespace simt {

#ifdef SIMT_ASAN

SharedMemory SharedMemory::find() {
  return {__start_simt_shared, static_cast<tt_u64>(__stop_simt_shared - __start_simt_shared)};
}

#else

namespace {

thread_local volatile char touched;  // so that the loader has made this thread's block

struct Search {
  tt_u64 code;
  SharedMemory found;
};

int look_at_module(dl_phdr_info* module, size_t, void* argument) {
  Search& search = *static_cast<Search*>(argument);
  const ElfW(Phdr) * tls = nullptr;
  bool ours = false;
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = module->dlpi_phdr[i];
    if (part.p_type == PT_TLS) tls = &part;
    if (part.p_type == PT_LOAD) ours |= search.code - module->dlpi_addr - part.p_vaddr < part.p_memsz;
  }
  if (!ours || tls == nullptr) return ours;
  search.found = {static_cast<tt_u8*>(module->dlpi_tls_data), tls->p_memsz};
  return 1;
}

}  // namespace

SharedMemory SharedMemory::find() {
  touched = 1;
  Search search{reinterpret_cast<tt_u64>(&look_at_module), {nullptr, 0}};
  dl_iterate_phdr(look_at_module, &search);
  return search.found;
}

#endif

// Each block another word: what depends on it changes with the seed. The high bits are set: as an index it leads far away.
void SharedMemory::poison(tt_u64 seed) const {
  const tt_u64 word = mix(seed) | 0xC0000000C0000000ull;
  tt_u64 at = 0;
  for (; at + sizeof word <= bytes; at += sizeof word) __builtin_memcpy(begin + at, &word, sizeof word);
  for (; at < bytes; ++at) begin[at] = 0xC0;
}

}  // namespace simt
