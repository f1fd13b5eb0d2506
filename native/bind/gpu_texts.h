// Python texts as the GPU engine takes them: each transcoded when its turn comes, into memory that the next one uses again.
#pragma once
#include "bind/bind.h"
#include "bind/text.h"
#include "gpu/chunk.h"

namespace toktier::bind {

// No Python API in text(): may run without the GIL. A malformed text throws TextFault.
class TupleTexts : public gpu::TextSource {
 public:
  // `texts`: of take_texts; outlives this.
  TupleTexts(PyObject* texts, const TranscodeLanes& lanes) : texts_(texts), lanes_(lanes) {
    for (std::size_t i = 0; i < count(); ++i) weight_ += std::size_t(text_weight(at(i)));
  }
  std::size_t count() const override { return std::size_t(PyTuple_GET_SIZE(texts_)); }
  std::size_t weight() const override { return weight_; }
  std::string_view text(std::size_t item) override {
    std::string_view utf8;
    TextFault fault{};
    if (!utf8_of(at(item), lanes_, buffer_, utf8, fault)) throw fault;
    return utf8;
  }

 private:
  PyObject* at(std::size_t i) const { return PyTuple_GET_ITEM(texts_, Py_ssize_t(i)); }

  PyObject* const texts_;
  const TranscodeLanes& lanes_;
  TextBuffer buffer_;
  std::size_t weight_ = 0;
};

}  // namespace toktier::bind
