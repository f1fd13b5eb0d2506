// What a caller gives as text, as valid UTF-8 for the engine. str: compact ASCII as it lies, else transcoded from its own
// storage; never through the interpreter's UTF-8 cache, which would leave a copy on every str. bytes: as they lie, checked.
// Anything else with the buffer protocol may change or be resized by another thread: copied first.
#pragma once
#include <cstdint>
#include <string_view>

#include "bind/bind.h"
#include "engine/lanes/transcode_lanes.h"

namespace toktier::bind {

struct TextFault {
  std::size_t position;
  bool is_str;                 // position is a code point of a str with a lone surrogate; else a byte of malformed UTF-8
  const char* what = nullptr;  // another fault, in words
};

// An exact str or exact bytes with the content of `object`, or null with TypeError set.
Ref take_text(PyObject* object, Py_ssize_t item = -1);
// Of several: a tuple of them, or null with an error set.
Ref take_texts(PyObject* texts);

// Reused memory for transcoded text; trim() gives it back above 1 MiB.
class TextBuffer {
 public:
  TextBuffer() = default;
  TextBuffer(const TextBuffer&) = delete;
  TextBuffer& operator=(const TextBuffer&) = delete;
  ~TextBuffer();
  char* reserve(std::size_t bytes);  // throws std::bad_alloc
  void trim();

 private:
  char* data_ = nullptr;
  std::size_t capacity_ = 0;
};

// UTF-8 of what take_text() returned; valid while the object lives and the buffer is not used again. False: `fault` says where.
// Touches no reference count: may run without the GIL.
bool utf8_of(PyObject* text, const TranscodeLanes& lanes, TextBuffer& buffer, std::string_view& out, TextFault& fault);

// The same of `count` code points of a str that is not ASCII, from one on.
bool utf8_of_part(PyObject* text, std::size_t from, std::size_t count, const TranscodeLanes& lanes, TextBuffer& buffer,
                  std::string_view& out, TextFault& fault);

// Size that decides whether to give up the GIL and how to share work: about the bytes of UTF-8.
Py_ssize_t text_weight(PyObject* text);

}  // namespace toktier::bind
