// Fuzz target: hostile program files. A file either ends in ProgramError or its every table may be followed: whatever it says,
// encode, count, split and decode stay inside memory and keep their promises to the caller (sizes that agree, valid UTF-8).
//
// libFuzzer input: program bytes, text, and the text's length in the last two bytes. With TOKTIER_FUZZ_STANDALONE it is a
// program of its own (no clang needed): fuzz_program_reader ITERATIONS SEED PROGRAM..., which mutates the seeds, the same for
// equal arguments.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/cuts.h"
#include "engine/engine.h"
#include "engine/joins.h"
#include "engine/lossy_utf8.h"
#include "shared/layout.h"

namespace {

using namespace toktier;

void promise(bool kept, const char* what) {
  if (kept) return;
  std::fprintf(stderr, "fuzz_program_reader: broken promise: %s\n", what);
  std::abort();
}

// Uses an open program on valid text.
void exercise(const std::shared_ptr<const Program>& program, const std::string& text) {
  const ProgramFacts facts = program_facts(*program);
  // Stored padding may ask for gigabytes, and gets them; that is no fault of the reader.
  const bool pads_little = facts.pad_fixed < 1u << 16 && (facts.pad_multiple < 1u << 16 || facts.pad_multiple == TT_NONE);
  Context context(program);
  Result result;
  for (unsigned bits = 0; bits < 16; ++bits) {
    EncodeOptions options;
    options.add_special_tokens = (bits & 1) != 0;
    options.plain = (bits & 2) != 0;
    options.offsets = (bits & 4) != 0;
    options.post_process = (bits & 8) != 0 && pads_little;
    try {
      context.encode(text, options, result);
      promise(result.offsets.size() == (options.offsets ? result.ids.size() : 0), "one offset for each id");
      for (const Offset& offset : result.offsets) promise(offset.end <= text.size(), "offsets inside the text");
      const std::vector<std::uint32_t> ids = result.ids;
      // Offsets are made piece by piece, ids alone word by word: tables that contradict each other may make two things of them.
      if (!options.offsets) promise(context.count(text, options) == ids.size(), "count() is the number of ids");
      context.encode(text, options, result);
      promise(result.ids == ids, "the cache does not change ids");
      if (!options.post_process)
        for (const std::uint32_t id : ids) promise(id < facts.n_ids, "ids below n_ids");
      for (const bool skip : {false, true}) {
        const std::string decoded = decode(*program, ids.data(), ids.size(), skip);
        promise(validate_utf8(decoded) == std::string_view::npos, "decoded text is valid UTF-8");
      }
    } catch (const SettingsError&) {
    }
  }
  std::vector<std::uint32_t> boundaries;
  std::vector<std::uint8_t> dropped;
  for (const SplitForm form : {SplitForm::token_automaton, SplitForm::two_pass, SplitForm::windows}) {
    split(*program, text, form, best_level(), boundaries, dropped);
    promise(dropped.size() == boundaries.size() + 1, "one flag for each piece");
    std::uint32_t before = 0;
    for (const std::uint32_t position : boundaries) {
      promise(position > before && position < text.size(), "boundaries ascend inside the text");
      before = position;
    }
  }
  for (const bool continued : {false, true}) {
    std::string kinds;
    list_cuts(*program, text, continued, boundaries, kinds);
    promise(kinds.size() == boundaries.size(), "one kind for each cut");
    std::size_t at = 0;
    for (const std::uint32_t position : boundaries) {
      promise(next_cut(*program, text, at, continued) == position, "next_cut() finds the cuts in order");
      promise(position >= at && position < text.size() && (text[position] & 0xC0) != 0x80, "cuts lie between characters");
      at = position + 1;
    }
    promise(next_cut(*program, text, at, continued) == text.size(), "the end comes after the last cut");
  }
  std::size_t characters = 0;
  for (const char c : text) characters += (c & 0xC0) != 0x80;
  promise(list_joins(*program, text).size() + 1 == std::max<std::size_t>(characters, 1), "a join for each two characters");
  for (std::uint32_t id = 0; id < std::min(facts.n_ids, 300u); ++id)
    if (const auto token = token_string(*program, id)) {
      promise(validate_utf8(*token) == std::string_view::npos, "token strings are valid UTF-8");
      token_id(*program, *token);
    }
}

// True when the program opened.
bool run(std::vector<std::uint64_t>& memory, std::size_t size, const std::string& text) {
  auto* const bytes = reinterpret_cast<std::uint8_t*>(memory.data());
  if (size >= TT_HEADER_SIZE) {  // the stated size would turn every cut file away at the door
    const std::uint64_t stated = size;
    std::memcpy(bytes + 16, &stated, sizeof stated);
  }
  try {
    const std::shared_ptr<const Program> program = open_program(bytes, size);
    exercise(program, text);
    return true;
  } catch (const ProgramError& error) {
    promise(!error.where.empty() && !error.what.empty(), "an error says where and what");
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t text_size = std::min<std::size_t>(data[size - 2] | std::size_t{data[size - 1]} << 8, size - 2);
  const std::size_t program_size = size - 2 - text_size;
  std::string text;
  append_lossy(text, {reinterpret_cast<const char*>(data) + program_size, text_size});
  // Exactly the program's bytes, so that a read beyond them is seen.
  std::vector<std::uint64_t> memory((program_size + 7) / 8);
  if (program_size != 0) std::memcpy(memory.data(), data, program_size);
  run(memory, program_size, text);
  return 0;
}

#ifdef TOKTIER_FUZZ_STANDALONE

namespace {

struct Random {
  std::uint64_t state;
  std::uint64_t next() {  // splitmix64
    std::uint64_t z = state += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
  }
  std::size_t below(std::size_t n) { return n == 0 ? 0 : next() % n; }
};

struct Range {
  std::size_t offset, length;
};

// Header, section table, then each section: equal chances for all, so that small tables are hit as often as large ones.
std::vector<Range> ranges_of(const std::vector<std::uint8_t>& program) {
  std::uint32_t count = 0;
  std::memcpy(&count, program.data() + 12, 4);
  count = std::min<std::uint32_t>(count, TT_MAX_SECTIONS);
  std::vector<Range> ranges{{0, TT_HEADER_SIZE}, {TT_HEADER_SIZE, count * TT_ENTRY_SIZE}};
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint64_t place[2];
    std::memcpy(place, program.data() + TT_HEADER_SIZE + i * TT_ENTRY_SIZE + 8, 16);
    if (place[1] != 0 && place[0] + place[1] <= program.size()) ranges.push_back({place[0], place[1]});
  }
  return ranges;
}

void mutate(std::vector<std::uint8_t>& program, const std::vector<Range>& ranges, Random& random) {
  const Range range = ranges[random.below(ranges.size())];
  const std::size_t at = range.offset + random.below(range.length);
  const std::size_t word = range.offset + random.below(range.length / 4) * 4;
  switch (random.below(6)) {
    case 0:
      program[at] ^= static_cast<std::uint8_t>(1u << random.below(8));
      break;
    case 1:
      program[at] = static_cast<std::uint8_t>(random.next());
      break;
    case 2: {
      static const std::uint32_t values[] = {0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x100, 0xFFFF, 0x10000, 0x10FFFF, 0x110000,
                                             0xD800, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF};
      const std::uint32_t value = values[random.below(std::size(values))];
      if (word + 4 <= program.size()) std::memcpy(program.data() + word, &value, 4);
      break;
    }
    case 3: {  // a neighbour of what stands there
      std::uint32_t value;
      if (word + 4 > program.size()) break;
      std::memcpy(&value, program.data() + word, 4);
      value += static_cast<std::uint32_t>(random.below(5)) - 2;
      std::memcpy(program.data() + word, &value, 4);
      break;
    }
    case 4: {  // a value from elsewhere in the same table
      const std::size_t from = range.offset + random.below(range.length / 4) * 4;
      if (std::max(word, from) + 4 <= program.size()) std::memmove(program.data() + word, program.data() + from, 4);
      break;
    }
    default:
      if (random.below(20) == 0) program.resize(random.below(program.size()) + 1);
      else program[at] = program[range.offset + random.below(range.length)];
  }
}

std::string random_text(Random& random) {
  static const char* const units[] = {
      "a", "e", "s", "'s", " ", "  ", "\n", "\t", "1", "12", ".", "<|", "|>", "<", ">", "the ", " and",
      "\xC3\xA9", "e\xCC\x81", "\xCC\xA3", "\xE2\x96\x81", "\xE4\xB8\xAD\xE6\x96\x87", "\xED\x95\x9C",
      "\xE1\x84\x92\xE1\x85\xA1", "\xEF\xAC\x81", "\xF0\x9F\x98\x80", "\xC2\xA0", "\xE3\x80\x80",
      "\xD9\x91\xD9\x8E", "A", "Z", "\x01", "<s>", "</s>", "<|endoftext|>", "<unk>"
  };
  std::string text;
  for (std::size_t n = random.below(60); n > 0; --n) {
    const char* const unit = units[random.below(std::size(units))];
    for (std::size_t k = random.below(12) == 0 ? random.below(70) : 1; k > 0; --k) text += unit;
  }
  return text;
}

std::vector<std::uint8_t> read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "fuzz_program_reader: cannot read %s\n", path);
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: fuzz_program_reader ITERATIONS SEED PROGRAM...\n");
    return 2;
  }
  const long iterations = std::atol(argv[1]);
  Random random{static_cast<std::uint64_t>(std::atoll(argv[2]))};
  std::vector<std::vector<std::uint8_t>> seeds;
  std::vector<std::vector<Range>> ranges;
  for (int i = 3; i < argc; ++i) {
    seeds.push_back(read_file(argv[i]));
    if (seeds.back().size() < TT_HEADER_SIZE) {
      std::fprintf(stderr, "fuzz_program_reader: %s is no program file\n", argv[i]);
      return 2;
    }
    ranges.push_back(ranges_of(seeds.back()));
  }
  long opened = 0, refused = 0;
  for (long i = 0; i < iterations; ++i) {
    const std::size_t which = random.below(seeds.size());
    std::vector<std::uint8_t> program = seeds[which];
    const bool pristine = i < static_cast<long>(seeds.size()) * 4;  // the seeds themselves must open
    if (!pristine)
      for (std::size_t n = 1 + random.below(3); n > 0 && program.size() == seeds[which].size(); --n)
        mutate(program, ranges[which], random);
    std::vector<std::uint64_t> memory((program.size() + 7) / 8);
    std::memcpy(memory.data(), program.data(), program.size());
    const bool open = run(memory, program.size(), random_text(random));
    promise(open || !pristine, "a seed opens");
    ++(open ? opened : refused);
  }
  std::printf("fuzz_program_reader: %ld programs opened and used, %ld refused\n", opened, refused);
  // Mutations that are always refused, or never, would test nothing.
  return iterations >= 1000 && (opened < iterations / 50 || refused < iterations / 50) ? 1 : 0;
}

#endif
