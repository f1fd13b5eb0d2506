// Ids on a device for other libraries, by the two protocols that are understood. They are complete before anyone sees the object,
// or in the stream of whoever asked for them: then any other stream that a consumer names waits for the copies.
#include "bind/gpu_ids.h"

#include <utility>

#include "bind/gpu_stream.h"

namespace nb = nanobind;

namespace toktier::bind {

namespace {

// What DLPack fixes (dlpack.h, before version 1.0, which everyone who takes the later form takes too).
struct DlDevice {
  std::int32_t type, id;
};
struct DlType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  std::int32_t n_dimensions;
  DlType type;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};
struct DlManagedTensor {
  DlTensor tensor;
  void* context;
  void (*destroy)(DlManagedTensor*);
};
constexpr std::int32_t kDlCuda = 2;
constexpr std::uint8_t kDlSigned = 0;

// Of both protocols; 0 would be ambiguous there.
constexpr std::uintptr_t kLegacyStream = 1;
constexpr long kNoStream = -1;  // nobody is to wait

struct Exported {
  DlManagedTensor managed;
  std::int64_t shape[1], strides[1];
  std::shared_ptr<const gpu::DeviceIds> ids;
};

// A capsule that nobody took over still has its first name.
void drop(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor") == 0) return;
  auto* const managed = static_cast<DlManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
  managed->destroy(managed);
}

void* address(const gpu::DeviceIds& ids) { return reinterpret_cast<void*>(ids.count() == 0 ? 0 : ids.data()); }

}  // namespace

GpuIds::GpuIds(std::unique_ptr<gpu::DeviceIds> ids, const std::vector<std::uint64_t>& row_splits)
    : ids_(std::move(ids)),
      row_splits_(reinterpret_cast<const char*>(row_splits.data()), row_splits.size() * sizeof row_splits[0]) {}

nb::object GpuIds::row_splits() const { return nb::steal(PyMemoryView_FromObject(row_splits_.ptr())).attr("cast")("Q"); }

nb::dict GpuIds::array_interface() const {
  nb::dict out;
  out["shape"] = nb::make_tuple(ids_->count());
  out["typestr"] = "<i4";
  out["data"] = nb::make_tuple(reinterpret_cast<std::uintptr_t>(address(*ids_)), false);
  out["strides"] = nb::none();
  out["stream"] = nb::none();
  if (const auto stream = ids_->stream()) out["stream"] = stream_number(*stream) == 0 ? kLegacyStream : stream_number(*stream);
  out["version"] = 3;
  return out;
}

// The arguments say what the consumer could do with; what is offered is one kind of thing, and no copy.
nb::object GpuIds::dlpack(nb::handle stream, nb::handle, nb::handle dl_device, nb::handle copy) const {
  if (copy.is(nb::handle(Py_True))) throw nb::builtin_exception(nb::exception_type::buffer_error, "the ids are not copied");
  if (!dl_device.is_none() && !dl_device.equal(dlpack_device()))
    throw nb::builtin_exception(nb::exception_type::buffer_error, "the ids stay on their device");
  complete_for(stream);
  auto exported = std::make_unique<Exported>();
  exported->ids = ids_;
  exported->shape[0] = std::int64_t(ids_->count());
  exported->strides[0] = 1;
  exported->managed.tensor = {address(*ids_), {kDlCuda, ids_->ordinal()}, 1, {kDlSigned, 32, 1}, exported->shape,
                              exported->strides, 0};
  exported->managed.context = exported.get();
  exported->managed.destroy = [](DlManagedTensor* managed) { delete static_cast<Exported*>(managed->context); };
  PyObject* const capsule = PyCapsule_New(&exported->managed, "dltensor", drop);
  if (capsule == nullptr) throw nb::python_error();
  static_cast<void>(exported.release());
  return nb::steal(capsule);
}

// The stream of a consumer, by the rules of DLPack: None is the legacy default one.
void GpuIds::complete_for(nb::handle stream) const {
  if (PyLong_Check(stream.ptr()) != 0 && PyLong_AsLong(stream.ptr()) == kNoStream && PyErr_Occurred() == nullptr) return;
  PyErr_Clear();
  ids_->complete_in(stream_of(stream).value_or(reinterpret_cast<gpu::CuStream>(kLegacyStream)));
}

nb::tuple GpuIds::dlpack_device() const { return nb::make_tuple(kDlCuda, ids_->ordinal()); }

void register_gpu_ids(nb::module_& m) {
  static nb::handle type;  // owned, never released
  if (type.is_valid()) {
    m.attr("GpuIds") = type;
    return;
  }
  const nb::object made = nb::class_<GpuIds>(m, "GpuIds", nb::is_final())
                              .def("__len__", &GpuIds::count)
                              .def_prop_ro("row_splits", &GpuIds::row_splits)
                              .def_prop_ro("__cuda_array_interface__", &GpuIds::array_interface)
                              .def("__dlpack__", &GpuIds::dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
                                   nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
                                   nb::arg("copy") = nb::none())
                              .def("__dlpack_device__", &GpuIds::dlpack_device);
  type = made.inc_ref();
}

}  // namespace toktier::bind
