// `_native.GpuEngine` and `_native.gpu_device`: the Python face of native/gpu. Texts are taken and errors raised as the CPU
// engine does it; results are the same types, with another `backend`.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "bind/batch_call.h"
#include "bind/encoding_batch.h"
#include "bind/errors.h"
#include "bind/gpu_error.h"
#include "bind/gpu_ids.h"
#include "bind/gpu_stream.h"
#include "bind/gpu_texts.h"
#include "bind/program.h"
#include "gpu/engine.h"

namespace nb = nanobind;

namespace toktier::bind {

namespace {

PyObject* gpu_backend = nullptr;

std::string capability(const gpu::DeviceFacts& device) {
  return std::to_string(device.major) + "." + std::to_string(device.minor);
}

void describe(nb::dict& out, const gpu::DeviceFacts& device, int driver_version) {
  out["name"] = nb::steal(PyUnicode_DecodeUTF8(device.name.data(), Py_ssize_t(device.name.size()), "replace"));
  out["architecture"] = "sm_" + std::to_string(device.major) + std::to_string(device.minor);
  out["compute_capability"] = capability(device);
  out["driver_version"] = gpu::version_text(driver_version);
  out["memory_bytes"] = device.memory_bytes;
  out["devices"] = device.devices;
}

nb::dict gpu_device(int index, const std::optional<std::string>& library) {
  gpu::DeviceFacts facts{};
  int version = 0;
  {
    const WithoutGil released(true);
    const gpu::Driver driver(library.value_or(""));
    version = driver.version();
    facts = find_device(driver, index);
  }
  nb::dict out;
  describe(out, facts, version);
  return out;
}

constexpr double kMostPatience = 86'400;

double seconds(gpu::Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

gpu::Nanoseconds checked_patience(double given) {
  if (!(given > 0 && given <= kMostPatience)) throw nb::value_error("patience must be more than 0 and at most 86,400 seconds");
  return std::chrono::duration_cast<gpu::Nanoseconds>(std::chrono::duration<double>(given));
}

// To be called in a catch block; raises what a text of the call is at fault for.
void set_item_error(const gpu::ItemError& error, bool single) {
  const Py_ssize_t item = single ? -1 : Py_ssize_t(error.item);
  try {
    std::rethrow_exception(error.error);
  } catch (const TextFault& fault) {
    set_invalid_text(fault, item);
  } catch (...) {
    set_from_current_exception(item);
  }
}

class GpuEngine {
 public:
  GpuEngine(nb::handle program, const nb::bytes& cubin, int device, unsigned lanes, std::size_t lane_bytes,
            const std::optional<std::string>& driver, double patience)
      : program_(nb::borrow(program)), owner_(program_of(program.ptr())) {
    if (owner_ == nullptr) throw nb::python_error();
    gpu::EngineOptions options;
    options.device = device;
    options.lanes = lanes;
    options.lane_bytes = lane_bytes;
    options.driver = driver.value_or("");
    options.workers = usable_processors();
    options.patience.least = checked_patience(patience);
    const std::string image(cubin.c_str(), cubin.size());
    const WithoutGil released(true);
    engine_ = std::make_unique<gpu::Engine>(owner_->shared(), owner_->contexts(), image, options);
  }

  nb::object encode_batch(nb::handle texts, bool add_special_tokens, bool plain) {
    const Ref taken = take_texts(texts.ptr());
    if (!taken) throw nb::python_error();
    return nb::steal(run(taken.get(), add_special_tokens, plain, false).release());
  }

  nb::object encode(nb::handle text, bool add_special_tokens, bool plain) {
    const Ref taken = take_text(text.ptr());
    const Ref texts(taken ? PyTuple_Pack(1, taken.get()) : nullptr);
    if (!texts) throw nb::python_error();
    const Ref batch = run(texts.get(), add_special_tokens, plain, true);
    PyObject* const row = PySequence_GetItem(batch.get(), 0);
    if (row == nullptr) throw nb::python_error();
    return nb::steal(row);
  }

  GpuIds encode_on_device(nb::handle texts, bool add_special_tokens, bool plain, nb::handle of_caller) {
    const std::optional<gpu::CuStream> stream = stream_of(of_caller);
    const Ref taken = take_texts(texts.ptr());
    if (!taken) throw nb::python_error();
    TupleTexts source(taken.get(), owner_->transcode());
    std::vector<std::uint64_t> row_splits;
    try {
      std::unique_ptr<gpu::DeviceIds> ids;
      {
        const WithoutGil released(true);
        ids = engine_->encode_on_device(source, add_special_tokens, plain, stream, row_splits);
      }
      return GpuIds(std::move(ids), row_splits);
    } catch (const gpu::ItemError& error) {
      set_item_error(error, false);
      throw nb::python_error();
    }
  }

  nb::dict time(nb::handle texts) {
    const Ref taken = take_texts(texts.ptr());
    if (!taken) throw nb::python_error();
    TupleTexts source(taken.get(), owner_->transcode());
    std::vector<std::pair<std::string, float>> steps;
    try {
      const WithoutGil released(true);
      steps = engine_->time(source);
    } catch (const gpu::ItemError& error) {
      set_item_error(error, false);
      throw nb::python_error();
    }
    nb::dict out;
    for (const auto& [step, milliseconds] : steps) out[step.c_str()] = milliseconds;
    return out;
  }

  nb::dict facts() const {
    const gpu::Engine::Facts& f = engine_->facts();
    nb::dict out, kernels;
    describe(out, f.device, f.driver_version);
    for (tt_u32 k = 0; k < TT_KERNEL_COUNT; ++k) {
      nb::dict kernel;
      kernel["registers"] = f.kernels[k].registers;
      kernel["local_bytes"] = f.kernels[k].local_bytes;
      kernel["shared_bytes"] = f.kernels[k].shared_bytes;
      kernel["resident_blocks"] = f.kernels[k].blocks;
      kernels[gpu::kernel_name(TtKernel(k))] = kernel;
    }
    out["index"] = f.device.ordinal;
    out["multiprocessors"] = f.device.multiprocessors;
    out["kernels"] = kernels;
    out["lanes"] = f.lanes;
    out["lane_bytes"] = f.lane_bytes;
    out["table_bytes"] = f.table_bytes;
    out["device_bytes"] = f.device_bytes;
    out["host_bytes"] = f.host_bytes;
    out["patience_seconds"] = seconds(engine_->patience().of(f.lane_bytes));
    return out;
  }

  nb::dict counters() const {
    const gpu::Counters& c = engine_->counters();
    nb::dict out, redone;
    for (unsigned k = 0; k < gpu::kLeftReasons; ++k) redone[gpu::left_reasons[k]] = c.redone[k].load();
    out["texts"] = c.texts.load();
    out["bytes"] = c.bytes.load();
    out["device_texts"] = c.device_texts.load();
    out["device_documents"] = c.device_documents.load();
    out["chunks"] = c.chunks.load();
    out["redone"] = redone;
    out["uncut"] = c.uncut.load();
    out["fallen"] = c.fallen.load();
    out["faults"] = c.faults.load();
    out["last_fault"] = nb::none();
    if (const std::optional<gpu::GpuError> fault = engine_->last_fault()) {
      nb::dict last;
      last["code"] = gpu::fault_code(fault->fault());
      last["message"] = fault->what();
      out["last_fault"] = last;
    }
    return out;
  }

  bool is_open() const { return engine_->is_open(); }

  void close() {
    const WithoutGil released(true);
    engine_->close();
  }

 private:
  // A batch. Never null: throws nb::python_error.
  Ref run(PyObject* texts, bool add_special_tokens, bool plain, bool single) {
    TupleTexts source(texts, owner_->transcode());
    gpu::Rows rows;
    bool on_device = false;
    try {
      const WithoutGil released(true);
      on_device = engine_->encode(source, add_special_tokens, plain, rows);
    } catch (const gpu::ItemError& error) {
      set_item_error(error, single);
      throw nb::python_error();
    }
    Ref batch(new_batch(0, 0, program_.ptr(), texts, {add_special_tokens, plain}));
    if (!batch) throw nb::python_error();
    EncodingBatchObject* const b = as_batch(batch.get());
    b->rows = Py_ssize_t(rows.rows());
    b->total = Py_ssize_t(rows.total());
    std::free(std::exchange(b->ids, rows.take_ids()));
    std::free(std::exchange(b->row_splits, rows.take_row_splits()));
    if (on_device) Py_SETREF(b->backend, Py_NewRef(gpu_backend));
    return batch;
  }

  const nb::object program_;
  const ProgramOwner* const owner_;
  std::unique_ptr<gpu::Engine> engine_;
};

}  // namespace

void register_gpu(nb::module_& m) {
  register_gpu_error(m);
  register_gpu_ids(m);
  m.def("gpu_device", &gpu_device, nb::arg("index") = 0, nb::arg("driver") = nb::none());
  static nb::handle type;  // owned, never released
  if (type.is_valid()) {
    m.attr("GpuEngine") = type;
    return;
  }
  gpu_backend = PyUnicode_InternFromString("gpu");
  if (gpu_backend == nullptr) throw nb::python_error();
  const nb::object made =
      nb::class_<GpuEngine>(m, "GpuEngine", nb::is_final())
          .def(nb::init<nb::handle, const nb::bytes&, int, unsigned, std::size_t, const std::optional<std::string>&,
                        double>(),
               nb::arg("program"), nb::arg("cubin"), nb::kw_only(), nb::arg("device") = 0, nb::arg("lanes") = 2,
               nb::arg("lane_bytes") = gpu::EngineOptions{}.lane_bytes, nb::arg("driver") = nb::none(),
               nb::arg("patience") = seconds(gpu::Patience{}.least))
          .def("encode", &GpuEngine::encode, nb::arg("text").none(), nb::arg("add_special_tokens") = false,
               nb::arg("plain") = false)
          .def("encode_batch", &GpuEngine::encode_batch, nb::arg("texts").none(), nb::arg("add_special_tokens") = false,
               nb::arg("plain") = false)
          .def("encode_on_device", &GpuEngine::encode_on_device, nb::arg("texts").none(),
               nb::arg("add_special_tokens") = false, nb::arg("plain") = false, nb::kw_only(), nb::arg("stream") = nb::none())
          .def("time", &GpuEngine::time, nb::arg("texts").none())
          .def("facts", &GpuEngine::facts)
          .def("counters", &GpuEngine::counters)
          .def_prop_ro("is_open", &GpuEngine::is_open)
          .def("close", &GpuEngine::close);
  type = made.inc_ref();
}

}  // namespace toktier::bind
