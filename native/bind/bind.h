// What the files of the Python module share. Assumed throughout: the GIL is held except where a scope says otherwise (the module
// does not claim to do without, so that a free-threaded interpreter switches its GIL on when it imports it), and there is one
// interpreter (module.cpp refuses others): statics hold types and interned names, made once and never freed.
#pragma once
#include <cxxabi.h>
#include <unistd.h>

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <nanobind/nanobind.h>

#include <utility>

namespace toktier::bind {

// An owned reference.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  static Ref borrow(PyObject* object) {
    Py_XINCREF(object);
    return Ref(object);
  }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    PyObject* old = std::exchange(object_, std::exchange(other.object_, nullptr));
    Py_XDECREF(old);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// The GIL given up for a scope, where `wanted`: handing it over costs more than a short call.
class WithoutGil {
 public:
  explicit WithoutGil(bool wanted) : state_(wanted ? PyEval_SaveThread() : nullptr) {}
  // An interpreter that ends takes threads that come back from a call away by pthread_exit, which unwinds; through a destructor
  // that would end the process by an abort. Such a thread waits here for the end of the process instead.
  ~WithoutGil() {
    if (state_ == nullptr) return;
    try {
      PyEval_RestoreThread(state_);
    } catch (abi::__forced_unwind&) {
      for (;;) pause();
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

constexpr Py_ssize_t kReleaseGilFrom = 2048;  // bytes of text

// Each part of the module adds itself. On failure: a Python error is set and false returned, or an exception thrown.
void register_compile(nanobind::module_& m);
void register_program(nanobind::module_& m);
void register_counters(nanobind::module_& m);
void register_faults(nanobind::module_& m);
void register_coverage(nanobind::module_& m);
void register_boundary_mutants(nanobind::module_& m);
void register_build_facts(nanobind::module_& m);
void register_gpu_tables(nanobind::module_& m);
void register_gpu_abi(nanobind::module_& m);
void register_arguments(nanobind::module_& m);
void register_gpu(nanobind::module_& m);
void register_prefix_cache(nanobind::module_& m);
void register_speculative_parts(nanobind::module_& m);
bool register_encoding(PyObject* module);
bool register_encoding_batch(PyObject* module);
bool register_encoder(PyObject* module);
bool register_session(PyObject* module);
bool register_shared_token_cache(PyObject* module);

}  // namespace toktier::bind
