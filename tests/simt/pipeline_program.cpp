// pipeline_run as a program, because a sanitizer must be there from the start: arguments are a job and where its outputs go, as
// tests/support/emulated_pipeline.py writes and reads them. Exit code: 0, or 4 after a report, which is printed; what a sanitizer
// finds ends the program in its own way.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "abi.h"
#include "pipeline.h"

namespace {

struct Head {
  std::uint64_t image_bytes, n, n_docs, plain, offsets, seed, resident_blocks, shuffled_blocks;
  char last[32];
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  std::ifstream job(arguments[1], std::ios::binary);
  const std::string data((std::istreambuf_iterator<char>(job)), std::istreambuf_iterator<char>());
  Head head;
  if (data.size() < sizeof head) return 2;
  std::memcpy(&head, data.data(), sizeof head);
  if (data.size() != sizeof head + head.image_bytes + 4 * (head.n_docs + 1) + head.n) return 2;
  const auto* const image = reinterpret_cast<const std::uint8_t*>(data.data()) + sizeof head;
  std::vector<std::uint32_t> doc_begin(head.n_docs + 1);
  std::memcpy(doc_begin.data(), image + head.image_bytes, 4 * doc_begin.size());

  const auto n = static_cast<std::uint32_t>(head.n), n_docs = static_cast<std::uint32_t>(head.n_docs);
  const PipelineInput input{image,
                            head.image_bytes,
                            image + head.image_bytes + 4 * doc_begin.size(),
                            doc_begin.data(),
                            n,
                            n_docs,
                            static_cast<std::uint32_t>(head.plain),
                            static_cast<std::uint32_t>(head.offsets),
                            head.last,
                            head.seed,
                            static_cast<std::uint32_t>(head.resident_blocks),
                            static_cast<std::uint32_t>(head.shuffled_blocks)};
  const std::size_t words = (n + TT_WORD_BYTES - 1) / TT_WORD_BYTES;
  std::vector<std::uint32_t> out(2 * n_docs + 1 + 4 * words + 2 + 4 * std::size_t{n} + TT_CONTROL_WORDS);
  std::uint32_t* at = out.data();
  const auto part = [&](std::size_t size) { return std::exchange(at, at + size); };
  PipelineOutput output;
  output.doc_flags = part(n_docs);
  output.bounds = part(words + 1);
  output.dropped = part(words);
  output.covered = part(words);
  output.tokens = part(words + 1);
  output.token_id = part(n);
  output.control = part(TT_CONTROL_WORDS);
  output.ids = part(n);
  output.row = part(n_docs + 1);
  output.offset_begin = part(n);
  output.offset_end = part(n);
  char report[4096];
  if (pipeline_run(&input, &output, report, sizeof report) != 0) {
    std::puts(report);
    return 4;
  }
  const auto bytes = static_cast<std::streamsize>(4 * out.size());
  std::ofstream(arguments[2], std::ios::binary).write(reinterpret_cast<const char*>(out.data()), bytes);
  return 0;
}
