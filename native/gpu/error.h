// GpuError: every way in which the GPU engine can fail, as one exception with a stable code. Its codes are the values of
// `_native.GpuError.code`. Not here: faults of texts, which are the caller's and the same on every engine.
#pragma once
#include <exception>
#include <string>

namespace toktier::gpu {

// name, and what the caller is to understand by it
#define TT_GPU_FAULTS(X)                                                          \
  X(driver_missing)     /* no libcuda, or it lacks a function that we call */     \
  X(driver_too_old)     /* older than CUDA 12 */                                  \
  X(no_device)          /* no such device, or the driver cannot use it */         \
  X(unsuitable_program) /* the kernels cannot follow this program */              \
  X(abi_mismatch)       /* the cubin was made for another host */                 \
  X(load_failed)        /* the driver refuses the cubin, or to set up */          \
  X(out_of_memory)      /* of the device, or page-locked */                       \
  X(launch_failed)      /* one run failed; the next one may succeed */            \
  X(device_lost)        /* nothing runs any more in this process */               \
  X(hung)               /* a run did not end in time, and may still write */      \
  X(closed)                                                                       \
  X(forked)             /* the engine belongs to the parent of this process */

enum class Fault : unsigned char {
#define TT_X(name) name,
  TT_GPU_FAULTS(TT_X)
#undef TT_X
};

const char* fault_code(Fault fault);

class GpuError : public std::exception {
 public:
  GpuError(Fault fault, std::string message) : fault_(fault), message_(std::move(message)) {}
  Fault fault() const { return fault_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  Fault fault_;
  std::string message_;
};

}  // namespace toktier::gpu
