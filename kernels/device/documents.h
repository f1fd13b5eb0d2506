// Documents of a chunk: where they begin, which of them holds a byte, and leaving one to the CPU.
#pragma once
#include "abi.h"
#include "device.h"

// The document that holds byte `at`: the last of those that begin there, since the ones before it are empty.
TT_DEV tt_u32 tt_document_of(const tt_u32* doc_begin, tt_u32 n_docs, tt_u32 at) {
  tt_u32 low = 0, high = n_docs - 1;
  while (low < high) {
    const tt_u32 middle = low + (high - low) / 2;
    if (doc_begin[middle + 1] <= at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// For TtLeft `reason`. Asked first, so that a text that is wrong at every byte does not wait for as many atomics.
TT_DEV void tt_leave_document(const TtGpuBuffers& buffers, tt_u32 document, tt_u32 reason) {
  if ((tt_load_acquire(buffers.doc_flags + document) & reason) != 0) return;
  if (tt_atomic_or(buffers.doc_flags + document, reason) == 0) tt_atomic_add(buffers.control + TT_CONTROL_LEFT_DOCUMENTS, 1);
}

TT_DEV void tt_leave_document_of(const TtGpuParams& p, tt_u32 at, tt_u32 reason) {
  tt_leave_document(p.buffers, tt_document_of(p.buffers.doc_begin, p.n_docs, at), reason);
}

// A segment ends before every begin of a document, and at n.
TT_KERNEL(TT_TILE_THREADS) tt_documents(TtGpuParams p) {
  for (tt_u64 k = static_cast<tt_u64>(tt_block()) * tt_threads() + tt_thread(); k <= p.n_docs;
       k += static_cast<tt_u64>(tt_blocks()) * tt_threads()) {
    const tt_u32 at = p.buffers.doc_begin[k];
    tt_atomic_or(p.buffers.edges + at / TT_WORD_BYTES, 1u << at % TT_WORD_BYTES);
  }
}
