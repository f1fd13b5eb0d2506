// The device image of a program: one stretch of bytes with all tables that kernels read, the two transition monoids included.
// The same program gives the same bytes, whose SHA-256 evidence binds. Only what a device reads: no strings, no META.
// Not here: uploading it, and which documents a kernel leaves to the CPU.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/abi.h"
#include "engine/program.h"
#include "gpu/image.h"

namespace toktier::gpu {

// A program that cannot run on a device (docs/gpu.md, "What runs on a device").
struct Unsuitable {
  std::string code;  // of TOKTIER_PREMISES below
  std::string what;  // a clause: "the pre-tokenizer ..."
};

// The premises in the order in which they are looked at: the first that fails is named. code, clause
#define TOKTIER_PREMISES(X)                                                                                    \
  X(model, "the model works on code points, not on the byte-level alphabet")                                    \
  X(byte_symbols, "the vocabulary lacks a byte of the byte-level alphabet")                                     \
  X(fuse_unk, "the model joins unknown tokens (fuse_unk)")                                                      \
  X(byte_fallback, "the model falls back to tokens of bytes (byte_fallback)")                                   \
  X(prefix_space, "the pre-tokenizer puts a space before the text (add_prefix_space)")                          \
  X(pre_tokenizer, "it has no pre-tokenizer, so that a whole text is one piece")                                \
  X(normalizer, "the normalizer does more than a Unicode form")                                                 \
  X(truncation, "the file stores a truncation, so that ids depend on the whole text")                           \
  X(padding, "the file stores a padding, so that ids depend on the whole text")                                 \
  X(left_monoid, "the transition monoid of the pre-tokenizer, read forwards, has more than 255 elements")       \
  X(right_monoid, "the transition monoid of the pre-tokenizer, read backwards, has more than 255 elements")

// The premise that fails, or nothing.
std::optional<Unsuitable> find_unsuitable(const Program& program);

struct DeviceTables {
  std::vector<std::uint8_t> image;  // gpu/image.h says how it is laid out
  std::uint32_t left_elements, right_elements;
};

// Throws Unsuitable.
DeviceTables make_device_tables(const Program& program);

}  // namespace toktier::gpu
