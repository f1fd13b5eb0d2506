// Header and section table of a program file: where each table lies. What is in the tables is not looked at here.
#pragma once
#include <cstdint>

#include "program.h"

namespace toktier {

extern const char* const section_names[TT_SECTION_COUNT];

struct Sections {
  const std::uint8_t* data = nullptr;
  std::uint64_t offset[TT_SECTION_COUNT] = {}, length[TT_SECTION_COUNT] = {};

  template <typename T>
  Array<T> get(TtSection s) const {
    return {reinterpret_cast<const T*>(data + offset[s]), length[s] / sizeof(T)};
  }
  bool has(TtSection s) const { return length[s] != 0; }
};

// Throws ProgramError unless the header holds and every section is known, aligned, inside the file and apart from the others.
Sections read_sections(const std::uint8_t* data, std::size_t size);

}  // namespace toktier
