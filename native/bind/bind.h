// What the files of the Python module share: how each registers itself. Layers here: errors, text, program, encoding, encoder.
#pragma once
#include <Python.h>
#include <nanobind/nanobind.h>

namespace toktier::bind {

void register_compile(nanobind::module_& m);  // build_bpe

}  // namespace toktier::bind
