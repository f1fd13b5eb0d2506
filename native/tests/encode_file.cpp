// encode_file PROGRAM TEXT [REPEAT] [LINES] [LEVEL]: encodes a UTF-8 file and prints its speed, the number of ids and a
// checksum, to profile the engine without Python. With LINES the file is encoded line by line. No test: the checksum is for
// whoever compares two builds by hand.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>

#include "engine/engine.h"

using namespace toktier;

namespace {

std::vector<char> read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "encode_file: cannot read %s\n", path);
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Processor time: what other programs take of a busy machine does not count.
double seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 6) {
    std::fprintf(stderr, "usage: encode_file PROGRAM TEXT [REPEAT] [LINES or -] [LEVEL]\n");
    return 2;
  }
  const std::vector<char> program_bytes = read_file(argv[1]), text = read_file(argv[2]);
  const int repeat = argc > 3 ? std::atoi(argv[3]) : 1;
  const bool lines = argc > 4 && std::strcmp(argv[4], "-") != 0;
  const std::optional<Level> level = argc > 5 ? level_of(argv[5]) : best_level();
  if (!level) {
    std::fprintf(stderr, "encode_file: this CPU has no level %s\n", argv[5]);
    return 2;
  }
  if (const std::size_t fault = validate_utf8({text.data(), text.size()}); fault != std::string_view::npos) {
    std::fprintf(stderr, "encode_file: %s is not valid UTF-8 at byte %zu\n", argv[2], fault);
    return 2;
  }
  try {
    const double opening = seconds();
    const auto program = open_program(reinterpret_cast<const std::uint8_t*>(program_bytes.data()), program_bytes.size());
    std::printf("open    %.2f ms\n", (seconds() - opening) * 1e3);
    Context context(program, *level);
    Result result;
    for (int round = 0; round < repeat; ++round) {
      std::uint64_t ids = 0, checksum = 0xCBF29CE484222325ull;
      const double start = seconds();
      for (std::size_t begin = 0; begin < text.size();) {
        const void* newline = lines ? std::memchr(text.data() + begin, '\n', text.size() - begin) : nullptr;
        const std::size_t end =
            newline == nullptr ? text.size() : static_cast<std::size_t>(static_cast<const char*>(newline) - text.data()) + 1;
        context.encode({text.data() + begin, end - begin}, {}, result);
        ids += result.ids.size();
        for (const std::uint32_t id : result.ids) checksum = (checksum ^ id) * 0x100000001B3ull;
        begin = end;
      }
      const double taken = seconds() - start;
      std::printf("round %d %.1f MB/s, %llu ids, checksum %016llx\n", round, static_cast<double>(text.size()) / taken / 1e6,
                  static_cast<unsigned long long>(ids), static_cast<unsigned long long>(checksum));
    }
#ifdef TOKTIER_COUNTERS
    const Counters c = take_counters();
    std::printf("counts  automaton %llu matcher %llu normalizer %llu merges %llu pairs %llu pieces %llu copied %llu\n",
                static_cast<unsigned long long>(c.automaton_steps), static_cast<unsigned long long>(c.matcher_steps),
                static_cast<unsigned long long>(c.normalizer_steps), static_cast<unsigned long long>(c.merge_steps),
                static_cast<unsigned long long>(c.pair_probes), static_cast<unsigned long long>(c.piece_probes),
                static_cast<unsigned long long>(c.bytes_copied));
#endif
  } catch (const ProgramError& error) {
    std::fprintf(stderr, "encode_file: %s: %s\n", error.where.c_str(), error.what.c_str());
    return 1;
  } catch (const SettingsError& error) {
    std::fprintf(stderr, "encode_file: %s\n", error.what.c_str());
    return 1;
  }
}
