// The reader of header and section table; tags and element sizes are those of kernels/shared/layout.h.
#include "program_sections.h"

#include <cstring>

#include "program_check.h"

namespace toktier {

const char* const section_names[TT_SECTION_COUNT] = {
#define TT_X(tag, size) #tag,
    TT_SECTIONS(TT_X)
#undef TT_X
};

namespace {

constexpr std::uint32_t element_sizes[TT_SECTION_COUNT] = {
#define TT_X(tag, size) size,
    TT_SECTIONS(TT_X)
#undef TT_X
};

template <typename T>
T load(const std::uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

}  // namespace

Sections read_sections(const std::uint8_t* data, std::size_t size) {
  require(reinterpret_cast<std::uintptr_t>(data) % 8 == 0, "header", "the memory is not aligned to 8 bytes");
  require(size >= TT_HEADER_SIZE && std::memcmp(data, "TTPROGRM", 8) == 0, "header", "this is no program file");
  const auto version = load<std::uint32_t>(data + 8), count = load<std::uint32_t>(data + 12);
  if (version != TT_FORMAT_VERSION)
    refuse("header",
           "format version " + std::to_string(version) + ", expected " + std::to_string(TT_FORMAT_VERSION));
  require(load<std::uint64_t>(data + 16) == size, "header", "the file does not have the size it states");
  require(load<std::uint64_t>(data + 120) == 0, "header", "a reserved field is not zero");
  require(count <= TT_MAX_SECTIONS, "header", "more than 128 sections");
  std::uint64_t end = TT_HEADER_SIZE + std::uint64_t{TT_ENTRY_SIZE} * count;
  require(end <= size, "header", "the section table is cut off");

  Sections out;
  out.data = data;
  bool seen[TT_SECTION_COUNT] = {};
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint8_t* entry = data + TT_HEADER_SIZE + std::uint64_t{TT_ENTRY_SIZE} * i;
    std::uint32_t s = 0;
    while (s < TT_SECTION_COUNT && std::memcmp(entry, section_names[s], 4) != 0) ++s;
    require(s < TT_SECTION_COUNT, "header", "a section of unknown tag");
    const auto element = load<std::uint32_t>(entry + 4);
    const auto offset = load<std::uint64_t>(entry + 8), length = load<std::uint64_t>(entry + 16);
    require(!seen[s], section_names[s], "the section stands twice");
    require(element == element_sizes[s], section_names[s], "its element size is wrong");
    require(load<std::uint64_t>(entry + 24) == 0, section_names[s], "a reserved field is not zero");
    require(offset % TT_ALIGNMENT == 0 && length % element == 0, section_names[s], "its offset or length is not aligned");
    require(offset >= end && offset <= size && length <= size - offset, section_names[s],
            "it overlaps another or leaves the file");
    end = offset + length;
    seen[s] = true;
    out.offset[s] = offset;
    out.length[s] = length;
  }
  return out;
}

}  // namespace toktier
