// What is taken as text, and its UTF-8: straight from the storage of a str (PEP 393).
#include "bind/text.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "bind/errors.h"
#include "engine/engine.h"

namespace toktier::bind {

namespace {

constexpr std::size_t kKeep = std::size_t(1) << 20;

// Items are bytes: formats B, b and c, and none, which means B.
bool holds_bytes(const Py_buffer& view) {
  const char* format = view.format == nullptr ? "B" : view.format;
  if (*format != '\0' && std::strchr("@=<>!", *format) != nullptr) ++format;
  return view.itemsize == 1 && *format != '\0' && std::strchr("Bbc", *format) != nullptr && format[1] == '\0';
}

Ref copied_bytes(PyObject* object, Py_ssize_t item) {
  Py_buffer view;
  if (PyObject_GetBuffer(object, &view, PyBUF_FULL_RO) != 0) return Ref();
  Ref bytes;
  if (!holds_bytes(view))
    set_not_a_text(object, item);
  else
    bytes = Ref(PyBytes_FromStringAndSize(nullptr, view.len));
  if (bytes && PyBuffer_ToContiguous(PyBytes_AS_STRING(bytes.get()), &view, view.len, 'C') != 0) bytes = Ref();
  PyBuffer_Release(&view);
  return bytes;
}

}  // namespace

Ref take_text(PyObject* object, Py_ssize_t item) {
  if (PyUnicode_Check(object)) {
    Ref text = PyUnicode_CheckExact(object) ? Ref::borrow(object) : Ref(PyUnicode_FromObject(object));
#if PY_VERSION_HEX < 0x030C0000
    if (text && PyUnicode_READY(text.get()) != 0) return Ref();
#endif
    return text;
  }
  if (PyBytes_CheckExact(object)) return Ref::borrow(object);
  if (PyBytes_Check(object)) return Ref(PyBytes_FromStringAndSize(PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object)));
  if (PyObject_CheckBuffer(object)) return copied_bytes(object, item);
  set_not_a_text(object, item);
  return Ref();
}

Ref take_texts(PyObject* texts) {
  if (PyUnicode_Check(texts) || PyBytes_Check(texts) || PyByteArray_Check(texts)) {
    PyErr_Format(PyExc_TypeError, "expected several texts, not one %.100s", Py_TYPE(texts)->tp_name);
    return Ref();
  }
  Ref items(PySequence_Tuple(texts));
  if (!items) return Ref();
  const Py_ssize_t n = PyTuple_GET_SIZE(items.get());
  Ref taken(PyTuple_New(n));
  for (Py_ssize_t i = 0; taken && i < n; ++i) {
    Ref text = take_text(PyTuple_GET_ITEM(items.get(), i), i);
    if (!text) return Ref();
    PyTuple_SET_ITEM(taken.get(), i, text.release());
  }
  return taken;
}

TextBuffer::~TextBuffer() { std::free(data_); }

char* TextBuffer::reserve(std::size_t bytes) {
  if (bytes > capacity_) {
    const std::size_t wanted = bytes < 4096 ? 4096 : bytes;
    std::free(data_);
    data_ = nullptr;
    capacity_ = 0;
    data_ = static_cast<char*>(std::malloc(wanted));
    if (data_ == nullptr) throw std::bad_alloc();
    capacity_ = wanted;
  }
  return data_;
}

void TextBuffer::trim() {
  if (capacity_ <= kKeep) return;
  std::free(data_);
  data_ = nullptr;
  capacity_ = 0;
}

bool utf8_of(PyObject* text, const TranscodeLanes& lanes, TextBuffer& buffer, std::string_view& out, TextFault& fault) {
  if (PyBytes_Check(text)) {
    out = {PyBytes_AS_STRING(text), std::size_t(PyBytes_GET_SIZE(text))};
    const std::size_t bad = lanes.first_malformed(reinterpret_cast<const std::uint8_t*>(out.data()), out.size());
    if (bad == out.size()) return true;
    fault = {bad, false};
    return false;
  }
  const std::size_t n = std::size_t(PyUnicode_GET_LENGTH(text));
  if (PyUnicode_IS_COMPACT_ASCII(text)) {
    out = {static_cast<const char*>(PyUnicode_DATA(text)), n};
    return true;
  }
  return utf8_of_part(text, 0, n, lanes, buffer, out, fault);
}

bool utf8_of_part(PyObject* text, std::size_t from, std::size_t count, const TranscodeLanes& lanes, TextBuffer& buffer,
                  std::string_view& out, TextFault& fault) {
  const void* const data = PyUnicode_DATA(text);
  const int kind = PyUnicode_KIND(text);
  const std::size_t longest = kind == PyUnicode_1BYTE_KIND ? 2 : kind == PyUnicode_2BYTE_KIND ? 3 : 4;  // bytes of a character
  char* const begin = buffer.reserve(count * longest + transcode_slack);
  std::size_t at = 0;
  const char* const end =
      kind == PyUnicode_1BYTE_KIND   ? lanes.from_latin1(static_cast<const Py_UCS1*>(data) + from, count, begin)
      : kind == PyUnicode_2BYTE_KIND ? lanes.from_ucs2(static_cast<const Py_UCS2*>(data) + from, count, begin, at)
                                     : lanes.from_ucs4(static_cast<const Py_UCS4*>(data) + from, count, begin, at);
  if (end == nullptr) {
    fault = {from + at, true};
    return false;
  }
  out = {begin, std::size_t(end - begin)};
  return true;
}

Py_ssize_t text_weight(PyObject* text) {
  return PyBytes_Check(text) ? PyBytes_GET_SIZE(text) : PyUnicode_GET_LENGTH(text) * Py_ssize_t(PyUnicode_KIND(text));
}

}  // namespace toktier::bind
