// compare_levels [ROUNDS]: the lanes of text (engine/lanes/transcode_lanes.h, scan_lanes.h) at every level of this CPU against
// plain loops written here, on random text that ends where memory may not be read. Needs no Python, so it runs where there is
// none: under an emulator of another processor (tools/cross_aarch64.py). The tests of the package hold whole encodings to the
// reference.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "engine/byte_filters.h"
#include "engine/lanes/transcode_lanes.h"
#include "shared/utf8.h"

using namespace toktier;

namespace {

std::mt19937_64 generator(1);
std::uint32_t below(std::uint64_t n) { return static_cast<std::uint32_t>(generator() % n); }

void promise(bool kept, Level level, const char* what) {
  if (kept) return;
  std::fprintf(stderr, "compare_levels: at level %s, %s\n", level_name(level), what);
  std::exit(1);
}

// Bytes that end at a page which cannot be read.
class GuardedText {
 public:
  GuardedText() : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    void* const memory = mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(static_cast<char*>(memory) + page_, page_, PROT_NONE) != 0) std::abort();
    end_ = static_cast<std::uint8_t*>(memory) + page_;
  }
  template <typename Unit>
  const Unit* put(const std::vector<Unit>& units) {
    std::uint8_t* const begin = end_ - units.size() * sizeof(Unit);
    if (!units.empty()) std::memcpy(begin, units.data(), units.size() * sizeof(Unit));
    return reinterpret_cast<const Unit*>(begin);
  }

 private:
  std::size_t page_;
  std::uint8_t* end_;
};

std::uint32_t random_character() {
  const std::uint32_t limits[] = {0x80, 0x80, 0x80, 0x800, 0x3000, 0x10000, 0x110000};
  const std::uint32_t cp = below(limits[below(7)]);
  return cp >= 0xD800 && cp < 0xE000 ? 0x4E00 : cp;
}

std::vector<std::uint8_t> utf8_of(const std::vector<std::uint32_t>& text) {
  std::vector<std::uint8_t> bytes(text.size() * 4);
  std::size_t size = 0;
  for (const std::uint32_t cp : text) size += tt_utf8_write(cp, bytes.data() + size);
  bytes.resize(size);
  return bytes;
}

template <typename Unit, typename Write>
void compare_writer(GuardedText& memory, std::uint32_t limit, const Write& write) {
  std::vector<std::uint32_t> text(below(200));
  for (std::uint32_t& cp : text) cp = random_character() % limit;
  for (std::uint32_t& cp : text) cp = cp >= 0xD800 && cp < 0xE000 ? 'x' : cp;
  const std::size_t good = limit > 0x800 && !text.empty() && below(4) == 0 ? below(text.size()) : text.size();
  if (good < text.size()) text[good] = 0xD800 + below(0x800);
  const std::vector<Unit> units(text.begin(), text.end());
  const std::vector<std::uint8_t> expected = utf8_of(text);
  for (const Level level : available_levels()) {
    std::vector<char> out(text.size() * 4 + transcode_slack);
    std::size_t at = 0;
    const char* const end = write(transcode_lanes(level), memory.put(units), units.size(), out.data(), at);
    promise((end == nullptr) == (good < text.size()) && (end != nullptr || at == good), level, "the first surrogate is another");
    if (end == nullptr) continue;
    promise(static_cast<std::size_t>(end - out.data()) == expected.size() &&
                std::string_view(out.data(), expected.size()) ==
                    std::string_view(reinterpret_cast<const char*>(expected.data()), expected.size()),
            level, "a str has other UTF-8");
  }
}

const char* latin1(const TranscodeLanes& lanes, const std::uint8_t* units, std::size_t n, char* out, std::size_t&) {
  return lanes.from_latin1(units, n, out);
}
const char* ucs2(const TranscodeLanes& lanes, const std::uint16_t* units, std::size_t n, char* out, std::size_t& at) {
  return lanes.from_ucs2(units, n, out, at);
}
const char* ucs4(const TranscodeLanes& lanes, const std::uint32_t* units, std::size_t n, char* out, std::size_t& at) {
  return lanes.from_ucs4(units, n, out, at);
}

void compare_checks(GuardedText& memory) {
  std::vector<std::uint32_t> text(below(120));
  for (std::uint32_t& cp : text) cp = random_character();
  std::vector<std::uint8_t> bytes = utf8_of(text);
  const bool changed = !bytes.empty() && below(3) != 0;
  if (changed) bytes[below(bytes.size())] = static_cast<std::uint8_t>(below(256));
  if (changed && below(2) == 0) bytes.resize(below(bytes.size() + 1));
  const std::size_t expected = transcode_lanes(Level::baseline).first_malformed(bytes.data(), bytes.size());
  promise(changed || expected == bytes.size(), Level::baseline, "well-formed text is malformed");
  for (const Level level : available_levels())
    promise(transcode_lanes(level).first_malformed(memory.put(bytes), bytes.size()) == expected, level,
            "the first malformed byte is another");
}

// All places that `find` gives, one block after the other.
template <typename Find>
std::vector<bool> places_of(std::uint32_t size, Level level, const Find& find) {
  std::vector<bool> found(size);
  for (std::uint32_t i = 0; i < size;) {
    std::uint64_t places = 0;
    const std::uint32_t block = find(i, places);
    promise(block >= i && block <= size && (block == size) == (places == 0), level, "a block is out of place");
    for (std::uint32_t k = 0; k < 64; ++k)
      if ((places >> k & 1) != 0) {
        promise(block + k < size, level, "a place is behind the text");
        found[block + k] = true;
      }
    i = size - block > 64 ? block + 64 : size;
  }
  return found;
}

void compare_starts(GuardedText& memory) {
  std::vector<TokenStart> starts;
  bool begins[256][256] = {};
  for (std::uint32_t k = 1 + below(20); k > 0; --k) {
    TokenStart start{static_cast<std::uint8_t>(below(below(3) == 0 ? 256 : 128)), {}};
    if (begins[start.first][0] || begins[start.first][255]) continue;
    const bool alone = below(6) == 0;
    for (std::uint32_t second = 0; second < 256; ++second)
      if (alone || below(40) == 0) {
        start.second[second >> 6] |= std::uint64_t{1} << (second & 63);
        begins[start.first][second] = true;
      }
    starts.push_back(start);
  }
  const StartFilter filter = make_start_filter(starts);
  for (int round = 0; round < 8; ++round) {
    std::vector<std::uint8_t> text(below(400));
    for (std::uint8_t& byte : text)
      byte = below(4) == 0 && !starts.empty() ? starts[below(starts.size())].first : static_cast<std::uint8_t>(below(256));
    const auto size = static_cast<std::uint32_t>(text.size());
    for (const Level level : available_levels()) {
      const std::uint8_t* const at = memory.put(text);
      const auto found = places_of(size, level, [&](std::uint32_t from, std::uint64_t& places) {
        return scan_lanes(level).find_starts(filter, at, from, size, places);
      });
      for (std::uint32_t i = 0; i < size; ++i)
        promise(found[i] || (i + 1 == size ? filter.is_first[text[i]] == 0 : !begins[text[i]][text[i + 1]]), level,
                "the start of a token is passed over");
    }
  }
}

void compare_characters(GuardedText& memory, const TtTrie<std::uint8_t>& trie, const CharacterFilter& filter,
                        const std::vector<std::uint32_t>& wanted) {
  std::vector<std::uint32_t> text(below(150));
  for (std::uint32_t& cp : text) cp = below(5) == 0 && !wanted.empty() ? wanted[below(wanted.size())] : random_character();
  const std::vector<std::uint8_t> bytes = utf8_of(text);
  const auto size = static_cast<std::uint32_t>(bytes.size());
  for (const Level level : available_levels()) {
    const std::uint8_t* const at = memory.put(bytes);
    const auto found = places_of(size, level, [&](std::uint32_t from, std::uint64_t& places) {
      return scan_lanes(level).find_characters(filter, at, from, size, places);
    });
    std::uint32_t position = 0;
    for (const std::uint32_t cp : text) {
      promise(cp < 0x80 || (tt_trie(trie, cp) & 1) == 0 || found[position], level, "a character is passed over");
      position += tt_utf8_length(bytes[position]);
    }
  }
}

void compare_character_filters(GuardedText& memory) {
  std::vector<std::uint16_t> stage1(TT_TRIE_STAGE1);
  std::vector<std::uint8_t> stage2(TT_TRIE_BLOCK * 40);
  for (std::uint16_t& block : stage1) block = static_cast<std::uint16_t>(below(200) == 0 ? 1 + below(39) : 0);
  const std::uint32_t rarity = 1 + below(40);
  for (std::size_t i = TT_TRIE_BLOCK; i < stage2.size(); ++i)
    if (below(rarity) == 0) stage2[i] = static_cast<std::uint8_t>(below(4));
  const TtTrie<std::uint8_t> trie{stage1.data(), stage2.data()};
  std::vector<std::uint32_t> wanted;
  for (std::uint32_t cp = 0x80; cp < 0x110000; ++cp)
    if ((cp < 0xD800 || cp >= 0xE000) && (tt_trie(trie, cp) & 1) != 0) wanted.push_back(cp);
  const CharacterFilter filter = make_character_filter(trie, 1);
  for (int round = 0; round < 100; ++round) compare_characters(memory, trie, filter, wanted);
}

void compare_replacements(GuardedText& memory) {
  std::vector<std::uint8_t> text(below(400));
  for (std::uint8_t& byte : text) byte = static_cast<std::uint8_t>(below(4) == 0 ? ' ' : below(256));
  const std::uint8_t with[] = {0xE2, 0, 0x81, 7};
  const std::uint32_t length = 2 + below(3);
  std::vector<std::uint8_t> expected;
  std::uint32_t count = 0;
  for (const std::uint8_t byte : text) {
    if (byte == ' ') expected.insert(expected.end(), with, with + length);
    if (byte != ' ') expected.push_back(byte);
    count += byte == ' ';
  }
  const auto size = static_cast<std::uint32_t>(text.size());
  for (const Level level : available_levels()) {
    promise(scan_lanes(level).count_byte(memory.put(text), size, ' ') == count, level, "a count of bytes is wrong");
    std::vector<std::uint8_t> out(expected.size() + replace_slack);
    out.resize(scan_lanes(level).replace_byte(memory.put(text), size, ' ', with, length, out.data()));
    promise(out == expected, level, "a byte is replaced in another way");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 3000;
  GuardedText memory;
  for (int round = 0; round < rounds; ++round) {
    compare_writer<std::uint8_t>(memory, 0x100, latin1);
    compare_writer<std::uint16_t>(memory, 0x10000, ucs2);
    compare_writer<std::uint32_t>(memory, 0x110000, ucs4);
    compare_checks(memory);
    compare_starts(memory);
    if (round % 100 == 0) compare_character_filters(memory);
    compare_replacements(memory);
  }
  for (const Level level : available_levels()) std::printf("%s ", level_name(level));
  std::printf("agree\n");
}
